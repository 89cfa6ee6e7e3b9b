// Elements without markup from strings: whatever a cluster names its topics, it stays text.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (key === "text") made.textContent = value;
    else if (key === "vars") for (const [variable, content] of Object.entries(value)) made.style.setProperty(variable, content);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

// Keeps the children of a list in the order of `items`, and every element that is still there: so
// focus, scrolling and hovering survive an update. `update(element, item)` fills one.
export function keep(list, items, keyOf, create, update) {
  const known = list.keptElements ?? (list.keptElements = new Map());
  const wanted = new Set();
  let place = list.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let made = known.get(key);
    if (made === undefined) {
      made = create(item);
      known.set(key, made);
    }
    update(made, item);
    if (made !== place) list.insertBefore(made, place);
    else place = place.nextSibling;
  }
  for (const [key, made] of known) {
    if (!wanted.has(key)) {
      made.remove();
      known.delete(key);
    }
  }
}

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setAttribute(target, name, value) {
  if (value === null || value === undefined || value === false) target.removeAttribute(name);
  else if (target.getAttribute(name) !== String(value)) target.setAttribute(name, value === true ? "" : String(value));
}

export const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en-US"));

export function span(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

export function clock(milliseconds) {
  const at = new Date(milliseconds);
  return at.toLocaleTimeString("en-GB", { hour12: false }) + "." + String(at.getMilliseconds()).padStart(3, "0");
}

export function toast(text, isTrouble = false) {
  const shown = element("p", { class: isTrouble ? "toast trouble" : "toast", text });
  byId("toasts").append(shown);
  setTimeout(() => shown.remove(), isTrouble ? 9000 : 4000);
}

// A broker keeps its colour: by the place of its id among all that were seen.
const seenBrokers = [];
export function brokerColour(broker) {
  if (broker === null || broker === undefined) return "var(--bad)";
  if (!seenBrokers.includes(broker)) {
    seenBrokers.push(broker);
    seenBrokers.sort((one, other) => one - other);
  }
  return `var(--broker-${(seenBrokers.indexOf(broker) % 12) + 1})`;
}
