"use strict";
// The slider of a report, and unfolding for print. Texts and numbers come from the page; nothing is computed.
(() => {
  function element(svg, name, attributes) {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // A vertical line at the budget, and a dot on each curve, in the coordinates of the picture.
  function addMark(svg) {
    const mark = element(svg, "g", { class: "mark" });
    const line = element(svg, "line", { class: "mark-line" });
    const dots = ["top", "average"].map((rule) => element(svg, "circle", { class: `mark-${rule}`, r: 4 }));
    mark.append(line, ...dots);
    svg.append(mark);
    return ([x, ceiling, floor, ...heights]) => {
      for (const [key, value] of [["x1", x], ["x2", x], ["y1", ceiling], ["y2", floor]]) line.setAttribute(key, value);
      dots.forEach((dot, i) => {
        dot.setAttribute("cx", x);
        dot.setAttribute("cy", heights[i] ?? 0);
        dot.setAttribute("visibility", heights[i] === null ? "hidden" : "visible");
      });
    };
  }

  function start(section) {
    const { budgets, cells, sentences, marks } = JSON.parse(document.getElementById("slider-data").textContent);
    const input = section.querySelector("input");
    const svg = section.querySelector("figure svg");
    const moveMark = svg && marks.length ? addMark(svg) : () => {};
    const places = section.querySelectorAll("dd");

    function show() {
      const i = Number(input.value);
      input.setAttribute("aria-valuetext", `k = ${budgets[i]}`);
      section.querySelector("output").textContent = `k = ${budgets[i]}`;
      section.querySelector("[role=status]").textContent = sentences[i];
      places.forEach((place, column) => { place.textContent = cells[i][column] || "\u2013"; });
      moveMark(marks[i]);
    }

    input.addEventListener("input", show);
    show();
    document.querySelectorAll(".needs-script").forEach((part) => { part.hidden = false; });
  }

  const section = document.getElementById("any-budget");
  if (section) start(section);

  // Print folded tables in full.
  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...folded()]; opened.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
})();
