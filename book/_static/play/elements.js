/* What the view of "Play with attention" is made of: elements, tables and their cells. */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;

  function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function option(value, text) {
    return el("option", { value }, text);
  }

  /* -> {element, select}: a choice with its label. */
  function choice(label, options, onchange) {
    const select = el("select", { onchange: () => onchange(select.value) }, ...options);
    return { element: el("label", { class: "play-field" }, el("span", {}, label), select), select };
  }

  /* A box that scrolls by itself, and by keyboard where there is something to scroll. */
  function scrolling(table, name) {
    const box = el("div", { class: "play-scroll" }, table);
    const reachable = { tabindex: "0", role: "region", "aria-label": name };
    const watch = new ResizeObserver(() => {
      const wide = box.scrollWidth > box.clientWidth + 1;
      for (const [attribute, value] of Object.entries(reachable)) {
        if (wide) box.setAttribute(attribute, value);
        else box.removeAttribute(attribute);
      }
    });
    watch.observe(box);
    watch.observe(table);
    return box;
  }

  function groupRow(columns, heads) {
    const span = columns.length / heads;
    const names = Array.from({ length: heads }, (_, head) =>
      el("th", { scope: "colgroup", colspan: span, class: "play-group" }, `head ${head}`)
    );
    return el("tr", {}, el("td", {}), ...names);
  }

  /* -> {element, cells, sums}: a table with headers, whose cells are filled later. `heads` share
     the columns; `sum` adds a last column. */
  function frame({ caption, note, corner, rows, columns, heads = 1, sum = false, role = null }) {
    const cells = rows.map(() => columns.map(() => el("td", {})));
    const sums = sum ? rows.map(() => el("td", { class: "play-sum" })) : [];
    const names = sum ? [...columns, "sum"] : columns;
    const headers = names.map((name) => el("th", { scope: "col" }, name));
    const head = el("tr", {}, el("td", { class: "play-corner" }, corner || ""), ...headers);
    const body = rows.map((name, r) =>
      el("tr", {}, el("th", { scope: "row" }, name), ...cells[r], ...sums.slice(r, r + 1))
    );
    const table = el(
      "table",
      { class: "play-table", role, "aria-label": role ? caption : null },
      el("caption", {}, caption, note ? el("small", {}, ` ${note}`) : null),
      el("thead", {}, heads > 1 ? groupRow(columns, heads) : null, head),
      el("tbody", {}, ...body)
    );
    return { element: scrolling(table, caption), cells, sums };
  }

  /* Write a number in its cell, and mark the cell if that is news. */
  function write(cell, text, mark) {
    const changed = cell.firstChild?.textContent !== text;
    cell.classList.toggle("play-changed", changed && mark);
    if (changed) cell.replaceChildren(el("span", {}, text));
  }

  function hatch(cell, hidden) {
    cell.classList.toggle("play-hidden", hidden);
    cell.querySelector(".play-unseen")?.remove();
    if (hidden) cell.append(el("span", { class: "play-unseen" }, " masked"));
  }

  function paint(cell, weight) {
    const rgb = play.colour(weight);
    cell.style.backgroundColor = `rgb(${rgb.join(" ")})`;
    cell.style.color = play.readableOn(rgb);
  }

  Object.assign(play, { choice, el, frame, hatch, option, paint, write });
})();
