/* What tests/browser asks of an open page. Each question is answered by a list of complaints. */
"use strict";

window.look = {
  /* Scripts of the page have had their say: formulas are set, the layout is at rest. */
  async settled() {
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    await document.fonts.ready;
    for (const image of document.images) image.loading = "eager";
    await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  },

  /* Besides, what scrolls is reached by keyboard: the theme sees to that when nothing has been added
     to the page for 300 ms, and it has had its size for as long. */
  async rested() {
    await look.settled();
    await new Promise((done) => setTimeout(done, 350));
  },

  /* What unfolds is open, as readers open it: after the page has come to rest. */
  unfold() {
    for (const it of document.querySelectorAll("details")) it.open = true;
  },
  fold() {
    for (const it of document.querySelectorAll("details")) it.open = false;
  },

  /* All that depends on neither theme nor room. */
  all: () => ({
    links: look.links(),
    hints: look.hints(),
    formulas: look.formulas(),
    images: look.images(),
    focus: look.focus(),
  }),

  formulas() {
    const notSet = [...document.querySelectorAll(".math")].filter(
      (it) => !it.querySelector("mjx-container"),
    );
    const wrong = [...document.querySelectorAll('merror, mjx-merror, [data-mml-node="merror"]')];
    const raw = [...shownTexts(), ...toldTexts()].filter((text) => TEX.test(text));
    return [
      ...notSet.map((it) => `not set: ${it.textContent}`),
      ...wrong.map((it) => `an error: ${it.closest("mjx-container").textContent}`),
      ...raw.map((text) => `raw: ${text.trim().slice(0, 90)}`),
    ];
  },

  images() {
    return [...document.images].flatMap((image) => {
      const name = image.getAttribute("src").split("/").pop();
      const alt = image.getAttribute("alt");
      if (!image.naturalWidth) return [`${name} did not load`];
      if (alt === null) return [`${name} has no alt text`];
      if (!image.closest("article")) return [];
      if (/\.(png|svg|jpe?g)\b|^\.*\//.test(alt)) return [`${name} has a path as alt text: ${alt}`];
      if (alt.trim().split(/\s+/).length < 3) return [`${name} does not say what it shows: “${alt}”`];
      return [];
    });
  },

  /* What is wider than the page, unless it scrolls in a box of its own. */
  overflow() {
    const width = document.documentElement.clientWidth;
    const found = [];
    if (document.documentElement.scrollWidth > width)
      found.push(`the page is ${document.documentElement.scrollWidth} wide, not ${width}`);
    for (const it of document.querySelectorAll("body *")) {
      const box = it.getBoundingClientRect();
      if (!box.width || !box.height || !shown(it) || hasAncestor(it, scrolls)) continue;
      const style = getComputedStyle(it);
      if (box.right > width + 1) found.push(`${described(it)} ends at ${Math.round(box.right)}`);
      else if (box.left < -1) found.push(`${described(it)} begins at ${Math.round(box.left)}`);
      else if (
        it.closest("article") &&
        /hidden|clip/.test(style.overflowX) &&
        it.clientWidth > 2 && // less has a line of text, or what only a screen reader reads
        widthInside(it) > it.clientWidth + 1
      )
        found.push(`${described(it)} is cut off`);
    }
    return found;
  },

  /* What a keyboard stops at and nobody would see that. */
  focus() {
    const before = document.activeElement;
    const found = stops().filter((it) => {
      const unfocused = looks(it);
      it.focus({ focusVisible: true, preventScroll: true });
      return document.activeElement !== it || looks(it) === unfocused;
    });
    document.activeElement.blur();
    before.focus({ preventScroll: true });
    return found.map(described);
  },

  /* Marks each text that looks like none before it on this page: of other colours, another size, on
     another ground, and tells how many these are. A page of code has thousands of texts, and it is
     enough to measure these. */
  markKinds() {
    for (const it of document.querySelectorAll("body *")) {
      it.removeAttribute("data-kind");
      if (![...it.childNodes].some(isText) || !shown(it)) continue;
      const { color, fontSize, fontWeight } = getComputedStyle(it);
      const key = [color, fontSize, fontWeight, it.closest("a") !== null, ...grounds(it)].join();
      if (!kinds.has(key)) it.setAttribute("data-kind", kinds.size);
      kinds.add(key);
    }
    return document.querySelectorAll("[data-kind]").length;
  },

  /* Empties what holds no such text, and fills it again: of thousands of elements that axe would
     look at, some hundred are left. */
  putAway() {
    const kept = new Set();
    for (const text of document.querySelectorAll("[data-kind]"))
      for (let it = text; it && !kept.has(it); it = it.parentElement) kept.add(it);
    for (const it of document.querySelectorAll("body *:not(script, style)")) {
      const above = it.parentElement;
      if (!kept.has(above) || kept.has(it) || above.hasAttribute("data-kind")) continue;
      away.set(it, [...it.childNodes]);
      it.replaceChildren();
    }
  },
  bringBack() {
    for (const [it, inside] of away) it.replaceChildren(...inside);
    away.clear();
  },

  /* How many stops a keyboard has to make, and at which it stands. */
  stops: () => stops().length,
  async stop() {
    const moving = document.getAnimations().filter((it) => isFinite(it.effect.getTiming().iterations));
    await Promise.all(moving.map((it) => it.finished.catch(() => {})));
    const it = document.activeElement;
    const box = it.getBoundingClientRect();
    const [x, y] = [box.left + Math.min(box.width, innerWidth) / 2, box.top + box.height / 2];
    const above = document.elementFromPoint(
      Math.min(Math.max(x, 1), innerWidth - 1),
      Math.min(Math.max(y, 1), innerHeight - 1),
    );
    const clear = above && (it.contains(above) || above.contains(it));
    return { name: described(it), at: stops().indexOf(it), hidden: !clear && described(it) };
  },

  /* Where the page asks the browser to look for things, besides what it loads at once. */
  hints: () =>
    [...document.querySelectorAll("link[href]")]
      .filter((it) => /pre(connect|fetch|load)|stylesheet|icon|manifest/.test(it.rel))
      .map((it) => it.href),
  links: () => [...document.querySelectorAll("a[href], area[href]")].map((it) => it.href),
};

const TEX = /\\[()[\]]|\\[a-zA-Z]{2,}|\$[^\s$][^$]*\$/;
const kinds = new Set();
const away = new Map();
const STOPS = "a[href], area[href], button, input, select, textarea, summary, [tabindex]";

function* shownTexts() {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const around = texts.currentNode.parentElement;
    if (!around.closest("code, pre, script, style, textarea, noscript, mjx-container"))
      yield texts.currentNode.data;
  }
}

function toldTexts() {
  const told = document.querySelectorAll("[alt], [title], [aria-label], meta[content]");
  const texts = [...told].flatMap((it) =>
    ["alt", "title", "aria-label", "content"].map((name) => it.getAttribute(name) || ""),
  );
  return [document.title, ...texts];
}

function shown(it) {
  return it.checkVisibility({ visibilityProperty: true });
}

/* Of a formula, its picture: the text for screen readers beside that is wider, and not seen. */
function widthInside(it) {
  const picture = it.matches(".math") && it.querySelector("mjx-container > svg");
  return picture ? picture.getBoundingClientRect().width : it.scrollWidth;
}

function scrolls(it) {
  return /auto|scroll/.test(getComputedStyle(it).overflowX);
}

function hasAncestor(it, holds) {
  for (let above = it.parentElement; above; above = above.parentElement)
    if (above !== document.body && holds(above)) return true;
  return false;
}

function isText(node) {
  return node.nodeType === Node.TEXT_NODE && node.data.trim();
}

function grounds(it) {
  const found = [];
  for (let each = it; each; each = each.parentElement) {
    const { backgroundColor, backgroundImage, opacity } = getComputedStyle(each);
    found.push(backgroundColor, backgroundImage, opacity);
  }
  return found.filter((each) => !/^(rgba\(0, 0, 0, 0\)|none|1)$/.test(each));
}

function stops() {
  return [...document.querySelectorAll(STOPS)].filter(
    (it) => it.tabIndex >= 0 && !it.disabled && it.getClientRects().length && shown(it),
  );
}

/* All by which a focus could be seen, on the element or on what stands right around it. */
function looks(it) {
  return [it, it.parentElement, ...it.children]
    .map((each) => {
      const style = getComputedStyle(each);
      const outline = style.outlineStyle === "none" ? "" : style.outline;
      return [outline, style.boxShadow, style.borderColor, style.backgroundColor].join();
    })
    .join(" / ");
}

function described(it) {
  const id = it.id ? `#${it.id}` : "";
  const classes = [...it.classList].map((name) => `.${name}`).join("");
  const text = (it.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  return `${it.tagName.toLowerCase()}${id}${classes} “${text}”`;
}
