"""Small trainings whose records the chapters show, each made anew by one command."""
