"use strict";
// The page's data, small helpers and the choice of colours. Nothing here loads or sends anything.
const MODEL = JSON.parse(document.getElementById("model").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; texts are always text nodes, never markup.
function make(name, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "line", "path", "circle", "rect", "text", "title"].includes(name);
  const element = isSvg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const signed = (value) => (Math.abs(value) < 0.0005 ? "0.000" : (value > 0 ? "+" : "−") + Math.abs(value).toFixed(3));

// Auto, then light, then dark; remembered where the browser allows it for a file.
const THEMES = { auto: "as the system", light: "light", dark: "dark" };
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.textContent = theme[0].toUpperCase() + theme.slice(1);
  button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
  try { localStorage.setItem("bench-theme", theme); } catch { /* a file may be kept from storing */ }
}
let stored = "auto";
try { stored = localStorage.getItem("bench-theme") || "auto"; } catch { /* likewise */ }
setTheme(stored in THEMES ? stored : "auto");
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const now = document.documentElement.dataset.theme || "auto";
  setTheme(names[(names.indexOf(now) + 1) % names.length]);
});

// Bars to scale, or as shares of each line.
for (const button of document.querySelectorAll(".switch")) {
  button.addEventListener("click", () => {
    const shares = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shares));
    for (const one of button.parentElement.querySelectorAll(".abs")) one.hidden = shares;
    for (const one of button.parentElement.querySelectorAll(".share")) one.hidden = !shares;
  });
}

// What is folded away is printed too, and folded again afterwards.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details.fold:not([open])")];
  for (const one of unfolded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of unfolded) one.open = false; });
