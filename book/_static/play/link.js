/* The state of "Play with attention" as the fragment of an address, and back.

   A fragment comes from anywhere: everything in it is checked, and what does not fit is an error
   that says so without repeating it. Items are joined by "_", rows by "~". */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const VERSION = "1";
  const LIMITS = { positions: 8, features: 8, name: 12, number: 1000, length: 4000 };
  const COLDEST = 0.01;
  const HOTTEST = 1000;

  function fail(what) {
    throw new RangeError(what);
  }

  /* Numbers that a field may hold: six decimals, so that a link stays short. */
  function tidyNumber(text) {
    if (!/^-?\d{1,4}(\.\d{1,6})?$/.test(text)) fail("a number can't be read");
    const number = Number(text);
    if (Math.abs(number) > LIMITS.number) fail(`a number is beyond ${LIMITS.number}`);
    return number === 0 ? 0 : number;
  }

  function writeNumber(number) {
    return String(Number(number.toFixed(6)));
  }

  function isName(text) {
    const letters = [...text].length;
    return letters >= 1 && letters <= LIMITS.name && /^[^\s_~\p{C}][^_~\p{C}]*$/u.test(text);
  }

  function readNames(text, what, limit) {
    const names = text.split("_").map(decodeURIComponent);
    if (names.length > limit) fail(`there are more than ${limit} ${what}`);
    if (!names.every(isName)) fail(`the name of one of the ${what} can't be used`);
    return names;
  }

  function readMatrix(text, what, rows, columns) {
    const matrix = text.split("~").map((row) => row.split("_").map(tidyNumber));
    if (matrix.length !== rows || matrix.some((row) => row.length !== columns)) {
      fail(`${what} must have ${rows} rows of ${columns} numbers`);
    }
    return matrix;
  }

  function readCount(text, what, least, most) {
    if (!/^\d{1,3}$/.test(text) || Number(text) < least || Number(text) > most) {
      fail(`${what} must be between ${least} and ${most}`);
    }
    return Number(text);
  }

  function readChoice(text, what, choices) {
    const choice = decodeURIComponent(text);
    if (!choices.includes(choice)) fail(`${what} is none that this page has`);
    return choice;
  }

  function readDrawn(text, i, j) {
    const rows = text.split("~");
    if (rows.length !== i || rows.some((row) => row.length !== j || /[^01]/.test(row))) {
      fail(`the drawn mask must have ${i} rows of ${j} ones and zeros`);
    }
    return rows.map((row) => [...row].map((bit) => bit === "1"));
  }

  function encode(state) {
    const names = (list) => list.map(encodeURIComponent).join("_");
    const matrix = (rows) => rows.map((row) => row.map(writeNumber).join("_")).join("~");
    const fields = {
      play: VERSION,
      i: names(state.queries),
      j: names(state.keys),
      d: names(state.features),
      e: names(state.carried),
      q: matrix(state.q),
      k: matrix(state.k),
      v: matrix(state.v),
      u: state.unit,
      s: state.scale,
      t: writeNumber(state.temperature),
      h: String(state.heads),
    };
    if (state.causal) fields.causal = "1";
    if (state.padding !== null) fields.words = String(state.padding);
    if (state.side === "left") fields.side = "left";
    if (state.window !== null) fields.before = String(state.window);
    if (state.drawn !== null) {
      fields.m = state.drawn.map((row) => row.map(Number).join("")).join("~");
    }
    if (state.mistake !== "none") fields.x = state.mistake.replaceAll(" ", "-");
    if (state.preset) fields.p = state.preset;
    return Object.entries(fields)
      .map(([name, value]) => `${name}=${value}`)
      .join("&");
  }

  /* -> the state; RangeError with a readable reason where the text is none. */
  function decode(text) {
    if (text.length > LIMITS.length) fail("it is too long");
    const fields = new Map(text.split("&").map((part) => part.split(/=(.*)/s).slice(0, 2)));
    const take = (name) => {
      if (!fields.has(name)) fail("a part of it is missing");
      return fields.get(name) || "";
    };
    if (take("play") !== VERSION) fail("it was made by another version of this page");
    try {
      return checked(take, fields);
    } catch (error) {
      if (error instanceof URIError) fail("a name in it can't be read");
      throw error;
    }
  }

  function checked(take, fields) {
    const optional = (name, read) => (fields.has(name) ? read(take(name)) : null);
    const queries = readNames(take("i"), "queries", LIMITS.positions);
    const keys = readNames(take("j"), "keys", LIMITS.positions);
    const features = readNames(take("d"), "features", LIMITS.features);
    const carried = readNames(take("e"), "features of values", LIMITS.features);
    const temperature = tidyNumber(take("t"));
    if (temperature < COLDEST || temperature > HOTTEST) {
      fail(`the temperature must be between ${COLDEST} and ${HOTTEST}`);
    }
    const mistakes = play.MISTAKES.map((name) => name.replaceAll(" ", "-"));
    const mistake = optional("x", (text) => readChoice(text, "the mistake", mistakes));
    const presets = play.PRESETS.map((preset) => preset.id);
    const preset = optional("p", (text) => readChoice(text, "the example", presets));
    return {
      queries,
      keys,
      features,
      carried,
      q: readMatrix(take("q"), "q", queries.length, features.length),
      k: readMatrix(take("k"), "k", keys.length, features.length),
      v: readMatrix(take("v"), "v", keys.length, carried.length),
      unit: readChoice(take("u"), "the unit", Object.keys(play.UNITS)),
      scale: readChoice(take("s"), "the scale", Object.keys(play.SCALES)),
      temperature,
      heads: readCount(take("h"), "the number of heads", 1, LIMITS.features),
      causal: optional("causal", (text) => readCount(text, "causal", 0, 1)) === 1,
      padding: optional("words", (t) => readCount(t, "the number of words", 0, keys.length)),
      side: optional("side", (t) => readChoice(t, "the side", ["left", "right"])) || "right",
      window: optional("before", (t) => readCount(t, "the window", 0, LIMITS.positions)),
      drawn: optional("m", (text) => readDrawn(text, queries.length, keys.length)),
      mistake: mistake === null ? "none" : play.MISTAKES[mistakes.indexOf(mistake)],
      preset,
    };
  }

  Object.assign(play, { COLDEST, HOTTEST, LIMITS, decode, encode, isName });
})();
