// The page around a console: a terminal (xterm.js), one WebSocket to the process that draws it, and what to do where
// there is none. Everything comes from the server that printed the link; nothing is asked of any other.

import { FitAddon } from "./xterm/addon-fit.mjs";
import { Unicode11Addon } from "./xterm/addon-unicode11.mjs";
import { WebglAddon } from "./xterm/addon-webgl.mjs";
import { Terminal } from "./xterm/xterm.mjs";

const KEY = "moregpu-key"; // in the storage of this origin, port included; the cookie of the session is HttpOnly
const PIECE = 1 << 16;
const NOT_YOURS = 4401, TOO_MANY = 4429, CANNOT_START = 4500;
const SAID_MS = 8000;
const find = (selector) => document.querySelector(selector);
const START_AGAIN = "Type moregpu-tui --web in a terminal of this machine: it prints a new link.";

// The link works once, and leaves the address before anything else is done.
const token = location.hash.slice(1);
if (token) history.replaceState(null, "", "/");

let terminal, fit, socket;

async function come() {
  find("#notice").hidden = true;
  document.body.classList.remove("live", "told");
  let answer;
  try {
    answer = await fetch("/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token, key: localStorage.getItem(KEY) ?? "" }),
    });
  } catch {
    return gone();
  }
  if (!answer.ok) return refused(await answer.json().then((said) => said.why, () => ""));
  const { key, look } = await answer.json();
  localStorage.setItem(KEY, key);
  wear(look);
  await fonts();
  open(key, look);
}

function wear(look) {
  for (const name of ["ground", "raised", "text", "dim", "accent", "rule"])
    document.documentElement.style.setProperty(`--${name}`, look[name]);
  document.documentElement.style.colorScheme = look.dark ? "dark" : "light";
}

// A sign that is drawn before its font is there would stay as another font drew it.
function fonts() {
  const wanted = [['14px "Console"', "a"], ['bold 14px "Console"', "a"], ['14px "Console Signs"', "✕"], ['14px "Console Dots"', "⣿"]];
  return Promise.allSettled(wanted.map(([font, text]) => document.fonts.load(font, text)));
}

function open(key, look) {
  terminal?.dispose();
  terminal = new Terminal({
    allowProposedApi: true, // widths of characters as of Unicode 11, below
    cursorBlink: false,
    customGlyphs: true,
    drawBoldTextInBrightColors: false,
    fontFamily: getComputedStyle(document.body).fontFamily,
    fontSize: 14,
    linkHandler: { activate: (_event, text) => visit(text), allowNonHttpProtocols: false },
    rescaleOverlappingGlyphs: true,
    scrollback: 0,
    theme: themeOf(look),
  });
  fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = "11";
  terminal.parser.registerOscHandler(52, copied);
  terminal.attachCustomKeyEventHandler(isForTheConsole);
  terminal.open(find("#terminal"));
  if (hasGraphics()) {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose());
    terminal.loadAddon(webgl);
  }
  fit.fit();
  terminal.write("\x1b[?25l"); // the console has cursors of its own
  connect(key);
  terminal.onData((text) => send(new TextEncoder().encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ columns: cols, rows }));
  });
  terminal.onWriteParsed(follow);
  terminal.focus();
}

// On a device that draws, cells are drawn by it; where that would be the processor in its place, as on machines without
// one, elements of the page are the cells: that is less work.
function hasGraphics() {
  return document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true }) !== null;
}

function connect(key) {
  const own = socket = new WebSocket(`ws://${location.host}/console`);
  let ended = null;
  own.binaryType = "arraybuffer";
  own.onopen = () => own.send(JSON.stringify({ key, columns: terminal.cols, rows: terminal.rows }));
  own.onmessage = ({ data }) => {
    if (typeof data === "string") {
      ended = JSON.parse(data).ended;
    } else {
      document.body.classList.add("live");
      terminal.write(new Uint8Array(data));
    }
  };
  own.onclose = ({ code }) => {
    if (own !== socket) return;
    if (ended !== null) terminal.write("", () => left(ended)); // once its last words are there
    else if (code === NOT_YOURS) refused("unknown");
    else if (code === TOO_MANY) full();
    else if (code === CANNOT_START) cannotStart();
    else gone();
  };
}

function send(bytes) {
  if (socket.readyState !== WebSocket.OPEN) return;
  for (let at = 0; at < bytes.length; at += PIECE) socket.send(bytes.subarray(at, at + PIECE));
}

// ---- keys, clipboard, links

// What the browser should keep: its own keys for the page, copying a selection of the page's, and pasting.
function isForTheConsole(event) {
  const plain = !event.ctrlKey && !event.altKey && !event.metaKey;
  if (plain && ["F5", "F11", "F12"].includes(event.key)) return false;
  const letter = event.key.toLowerCase();
  if (event.ctrlKey && !event.altKey && letter === "v") return false; // its text comes as a paste
  if (event.ctrlKey && !event.altKey && letter === "c" && terminal.hasSelection()) return false;
  return true;
}

// OSC 52. What the console copies may go to the clipboard; nothing asks for what is there.
function copied(data) {
  const packed = data.slice(data.indexOf(";") + 1);
  if (packed === "?") return true;
  let text;
  try {
    text = new TextDecoder().decode(Uint8Array.from(atob(packed), (character) => character.charCodeAt(0)));
  } catch {
    return true;
  }
  copy(text).catch(() => say("The browser lets nothing into the clipboard unless you ask for it.", "Copy", () => copy(text)));
  return true;
}

async function copy(text) {
  await navigator.clipboard.writeText(text);
}

function visit(address) {
  if (/^https?:\/\//.test(address))
    say(`Open ${address.slice(0, 200)} in another tab?`, "Open", () => window.open(address, "_blank", "noopener,noreferrer"));
}

let saying;
function say(text, does, action) {
  const [said, button] = find("#said").children;
  said.textContent = text;
  button.textContent = does;
  button.onclick = async () => {
    await action();
    hush();
  };
  find("#said").hidden = false;
  clearTimeout(saying);
  saying = setTimeout(hush, SAID_MS);
}

function hush() {
  find("#said").hidden = true;
  terminal?.focus();
}

// ---- looks

function themeOf(look) {
  const colours = { background: look.ground, foreground: look.text, cursor: look.text, selectionBackground: look.rule };
  for (const [name, colour] of Object.entries(look.ansi)) {
    const own = name.replace(/_(.)/, (_, letter) => letter.toUpperCase());
    colours[own] = colour;
  }
  return colours;
}

// The margin has the ground of the console's edge: another theme may be chosen in it.
let followed = 0;
function follow() {
  if (performance.now() < followed) return;
  followed = performance.now() + 250;
  const cell = terminal.buffer.active.getLine(terminal.rows >> 1)?.getCell(0);
  if (!cell?.isBgRGB()) return;
  const ground = `#${cell.getBgColor().toString(16).padStart(6, "0")}`;
  if (document.body.style.background !== ground) document.body.style.background = ground;
}

let resizing = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => fit?.fit());
}).observe(find("#terminal"));

// ---- where there is no console

function tell({ title, words = "", reason, next, does, action }) {
  document.body.classList.add("told");
  find("#title").textContent = title;
  find("#notice pre").textContent = words;
  find("#notice pre").hidden = !words;
  find("#reason").textContent = reason;
  find("#next").textContent = next;
  const button = find("#notice button");
  button.textContent = does ?? "";
  button.hidden = !does;
  button.onclick = action;
  find("#notice").hidden = false;
  if (does) button.focus();
}

const again = { does: "Open it again", action: come };

function left(status) {
  if (status === 0) {
    const reason = "You left it, or it was told to end. The pool goes on.";
    tell({ title: "The console has ended", reason, next: "The server still runs: ctrl+c in its terminal ends it.", ...again });
  } else {
    const lines = Array.from({ length: terminal.rows }, (_, row) => terminal.buffer.active.getLine(row)?.translateToString(true) ?? "");
    const reason = `It ended with status ${status}.`;
    tell({ title: "The console could not go on", words: lines.join("\n").trim(), reason, next: "When that is mended, open it again.", ...again });
  }
}

function gone() {
  const reason = "It was stopped, or the connection to it was cut. The pool goes on without it.";
  tell({ title: "The server is gone", reason, next: START_AGAIN, does: "Try again", action: come });
}

function refused(why) {
  if (why === "used") {
    const reason = "A link opens the console once, for the browser that is first. Another one was.";
    const next = `If that was not you, end the server now: ctrl+c in its terminal. ${START_AGAIN}`;
    tell({ title: "This link was used already", reason, next });
  } else {
    const reason = "This browser has no console here: it did not open the link that the server printed.";
    tell({ title: "The console wants its link", reason, next: `Open that link, if no browser has yet. ${START_AGAIN}` });
  }
}

function full() {
  const reason = "The server runs as many consoles as it may: one for each tab.";
  tell({ title: "Too many consoles are open", reason, next: "Close one of the other tabs.", does: "Try again", action: come });
}

function cannotStart() {
  const reason = "The system gave no terminal or process for another console.";
  tell({ title: "The console could not be started", reason, next: "Close what is not needed.", does: "Try again", action: come });
}

come();
