/* How search orders what it finds. Sphinx takes this in place of its own numbers, which are the
   ones below; what is ours is `score`. */
var Scorer = {
  // result: [page, title, anchor, description, score, file]. An entry of the glossary would be
  // listed under the page's title, once for each of its names: say which entry it is.
  score: (result) => {
    const [, title, anchor, , score] = result;
    if (anchor.startsWith("#term-") && !title.includes(" > "))
      result[1] = `${title} > ${anchor.slice("#term-".length).replaceAll("-", " ")}`;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
