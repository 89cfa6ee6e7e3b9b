// Everything around the pictures: legend, violations, the pinned event, the table. Text from the run is only ever set as text.
const LISTED_MAX = 300;
const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function buildLegend() {
  const counts = familyNames.map(() => 0);
  for (let i = 0; i < count; i++) counts[kindOf(i).family]++;
  familyNames.forEach((name, family) => {
    if (!counts[family]) return;
    const button = element("button", { type: "button", title: "show or hide" }, families[name], element("small", { textContent: counts[family].toLocaleString("en") }));
    button.style.setProperty("--dot", `var(--${name})`);
    button.setAttribute("aria-pressed", "true");
    button.onclick = () => {
      if (!view.hidden.delete(family)) view.hidden.add(family);
      button.setAttribute("aria-pressed", String(!view.hidden.has(family)));
      changed();
    };
    $("legend").append(button);
  });
}

function buildWitnesses() {
  $("witness-section").hidden = !breaches.length;
  for (const invariant of invariants) {
    if (!invariant.breaches.length) continue;
    const shown = invariant.breaches.length, all = invariant.violations;
    const heading = all > shown ? `${invariant.name}: the first ${shown} of ${all.toLocaleString("en")}` : invariant.name;
    $("witnesses").append(element("li", { className: "group", textContent: heading }));
    for (const breach of breaches.filter((each) => each.invariant === invariant.name)) {
      const button = element("button", { type: "button", textContent: breach.message }, element("small", { textContent: breach.events.map(idOf).join(" → ") }));
      button.onclick = () => chooseBreach(breach);
      breach.button = button;
      $("witnesses").append(element("li", {}, button));
    }
  }
  for (const row of document.querySelectorAll("#invariants tr[data-invariant]")) {
    row.querySelector("button").onclick = () => {
      const first = breaches.find((each) => each.invariant === row.dataset.invariant);
      const wasSelected = row.classList.contains("selected");
      document.querySelectorAll("#invariants tr.selected").forEach((each) => each.classList.remove("selected"));
      row.classList.toggle("selected", !wasSelected);
      if (first && !wasSelected) chooseBreach(first);
    };
  }
}

function followEventButtons() {
  for (const button of document.querySelectorAll("[data-row]")) {
    button.onclick = () => {
      goTo(Number(button.dataset.row));
      canvases.timeline.scrollIntoView({ block: "nearest" });
    };
  }
}

function markWitness() {
  for (const breach of breaches) {
    const isChosen = breach === view.breach;
    if (isChosen && breach.button.getAttribute("aria-current") !== "true") breach.button.scrollIntoView({ block: "nearest" });
    breach.button.setAttribute("aria-current", String(isChosen));
  }
}

function jump(i, text) {
  const button = element("button", { type: "button", textContent: text });
  button.onclick = () => goTo(i);
  return button;
}

function effectsOf(i) {
  const effects = [];
  for (let later = i + 1; later < count && later < i + 200000 && effects.length < 6; later++) if (data.cause[later] === i) effects.push(later);
  return effects;
}

function showDetail() {
  const i = view.kept >= 0 ? view.kept : view.pointed;
  const panel = $("detail");
  if (panel.dataset.shown === String(i)) return;
  panel.dataset.shown = String(i);
  if (i < 0) return panel.replaceChildren(element("p", { className: "quiet", textContent: "Hover over an event, or click one to pin it here." }));
  const heading = element("h3", {}, kindOf(i).name, element("small", { textContent: `${(data.t[i] / 1e9).toFixed(9)} s` }), element("small", { textContent: idOf(i) }));
  const list = element("dl");
  for (const [name, value] of fieldsOf(i)) list.append(element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })));
  const links = element("div", { className: "links" });
  const cause = data.cause[i];
  if (cause >= 0) links.append("follows from", jump(cause, `${kindOf(cause).name} on ${facts.lanes[data.lane[cause]].name}, ${duration(data.t[i] - data.t[cause])} before`));
  const effects = effectsOf(i);
  if (effects.length) links.append("leads to", ...effects.map((later) => jump(later, `${labelOf(later)} on ${facts.lanes[data.lane[later]].name}`)));
  panel.replaceChildren(heading, list, links);
}

function showTip(i, x, y) {
  const tip = $("tip");
  tip.hidden = i < 0;
  if (i < 0) return;
  const fields = fieldsOf(i).map(([name, value]) => `${name} ${value.length > 60 ? `${value.slice(0, 59)}…` : value}`).join(" · ");
  tip.replaceChildren(element("b", { textContent: kindOf(i).name }), element("span", { textContent: `${(data.t[i] / 1e9).toFixed(6)} s · ${idOf(i)}` }), element("br"), element("span", { textContent: fields }));
  const room = canvases.timeline.clientWidth;
  tip.style.left = `${x + 16 + tip.offsetWidth > room ? Math.max(0, x - tip.offsetWidth - 14) : x + 16}px`;
  tip.style.top = `${Math.max(0, y + 14)}px`;
}

function showWindow(visible) {
  const span = view.to - view.from;
  $("window").textContent = `${seconds(Math.max(0, view.from), span)} to ${seconds(view.to, span)}, ${visible.toLocaleString("en")} events`;
}

let listingTimer = 0;
function showListing() {
  if (!$("listing").open) return;
  clearTimeout(listingTimer);
  listingTimer = setTimeout(() => {
    const rows = [];
    let total = 0;
    for (let i = firstFrom(view.from), end = firstFrom(view.to + 1); i < end; i++) {
      if (view.hidden.has(kindOf(i).family)) continue;
      if (++total > LISTED_MAX) continue;
      const id = jump(i, idOf(i)), cause = data.cause[i] >= 0 ? jump(data.cause[i], idOf(data.cause[i])) : "";
      const fields = fieldsOf(i).map(([name, value]) => `${name}=${value}`).join(" ");
      rows.push(element("tr", {}, element("td", { textContent: `${(data.t[i] / 1e9).toFixed(6)} s` }), element("td", {}, id), element("td", { textContent: kindOf(i).name }), element("td", { textContent: fields }), element("td", {}, cause)));
    }
    $("listing-rows").replaceChildren(...rows);
    $("listing-note").textContent = total > LISTED_MAX ? `The first ${LISTED_MAX} of ${total.toLocaleString("en")} events: zoom in to see the others.` : "";
  }, 120);
}
