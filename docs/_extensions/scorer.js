// Ranks how-tos above other pages that contain the words, and below an exact name of the reference. Other values are
// Sphinx's own.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => score + (docname.startsWith("howto/") ? 10 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
