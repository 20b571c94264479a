/* How search orders what it finds. Sphinx takes this in place of its own numbers, which are the
   ones below; what is ours is `score`. */
var Scorer = {
  // result: [page, title, anchor, description, score, file]. An entry of the index would be listed
  // under its page's title: say which term of the glossary, which exercise it is.
  score: (result) => {
    const [, title, anchor, , score] = result;
    const [, kind, name] = anchor.match(/^#(term|exercise)-(.*)$/) ?? [];
    if (kind && !title.includes(" > ")) {
      const chapter = title.split(" · ")[0];
      const entry = kind === "term" ? name.replaceAll("-", " ") : `Exercise ${chapter}.${name}`;
      result[1] = `${title} > ${entry}`;
    }
    return score;
  },
  objNameMatch: 80, // a name of the package: 11 would be behind every word that holds it
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
