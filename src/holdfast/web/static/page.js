// Everything here is a convenience: each page works without it.
"use strict";

const items = () => [...document.querySelectorAll("[data-item]")];
let chosen = -1;

function choose(at) {
  const all = items();
  if (!all.length) return;
  chosen = Math.max(0, Math.min(at, all.length - 1));
  all.forEach((each, number) => each.classList.toggle("chosen", number === chosen));
  all[chosen].scrollIntoView({ block: "nearest" });
  const link = all[chosen].querySelector("a[href]");
  if (link) link.focus({ preventScroll: true });
}

// plans, in place

async function showPlan(link) {
  const place = link.closest(".hunk, .file, .turn-head, main");
  const open = document.querySelector(".plan-slot");
  if (open) open.remove();
  const slot = document.createElement("div");
  slot.className = "plan-slot";
  slot.setAttribute("aria-live", "polite");
  slot.opener = link;
  slot.textContent = "Computing the plan …";
  if (place.matches(".hunk, .file")) place.querySelector("header").after(slot);
  else link.closest("p, header, h2").after(slot);
  const answer = await fetch(`${link.href}&fragment=plan`, { headers: { accept: "text/html" } });
  const text = await answer.text();
  const page = new DOMParser().parseFromString(text, "text/html");
  const found = page.querySelector(".plan") || page.querySelector(".empty");
  slot.replaceChildren(found || "The plan could not be loaded.");
  const button = slot.querySelector("button.primary") || slot.querySelector("a");
  slot.scrollIntoView({ block: "nearest" });
  if (button) button.focus();
}

function closePlan() {
  const slot = document.querySelector(".plan-slot");
  slot?.opener.focus();
  slot?.remove();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-plan]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    showPlan(link).catch(() => { location.href = link.href; });
    return;
  }
  const cancel = event.target.closest("a[data-cancel]");
  const slot = cancel && cancel.closest(".plan-slot");
  if (slot) {
    event.preventDefault();
    closePlan();
  }
  if (event.target.closest("[data-keys]")) document.getElementById("keys").showModal();
});

// after taking back, undo and redo the page is loaded again: what was looked at stays where it was, with the focus

document.addEventListener("submit", (event) => {
  const slot = event.target.closest(".plan-slot");
  if (!slot && !event.target.closest(".banner")) return;
  const kept = { page: location.pathname };
  if (slot) {
    kept.link = slot.opener.getAttribute("href");
    kept.path = slot.opener.closest("[data-path]")?.dataset.path;
  } else {
    kept.item = items().findIndex((each) => each.getBoundingClientRect().bottom > innerHeight / 3);
  }
  const anchor = slot ? slot.opener : items()[kept.item] || document.getElementById("main");
  kept.top = anchor.getBoundingClientRect().top;
  sessionStorage.setItem("kept", JSON.stringify(kept));
});

function stay() {
  const kept = JSON.parse(sessionStorage.getItem("kept"));
  sessionStorage.removeItem("kept");
  if (!kept || kept.page !== location.pathname) return;
  const same = [...document.querySelectorAll("a[data-plan]")].find((each) => each.getAttribute("href") === kept.link);
  const file = [...document.querySelectorAll("[data-path]")].find((each) => each.dataset.path === kept.path);
  const link = same || file?.querySelector("h3 a");
  const anchor = link || items()[kept.item] || document.getElementById("main");
  if (link || !kept.link) {
    scrollTo({ top: scrollY + anchor.getBoundingClientRect().top - kept.top, behavior: "instant" });
  }
  (link || document.querySelector(".banner button"))?.focus({ preventScroll: true });
  if (link) chosen = items().indexOf(link.closest("[data-item]"));
}

stay();

// what is reviewed: marked without loading the page again

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-review]");
  if (!form) return;
  event.preventDefault();
  const answer = await fetch(`${form.action}.json`, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (!answer.ok) return form.submit();
  const on = form.elements.reviewed.value === "1";
  form.elements.reviewed.value = on ? "0" : "1";
  form.querySelector("button").setAttribute("aria-pressed", on);
  form.closest(".hunk, .file").classList.toggle("reviewed", on);
});

// keys

function follow(selector) {
  const link = document.querySelector(selector);
  if (link) location.href = link.href;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) {
    if (event.key === "Escape" && event.target.blur) event.target.blur();
    return;
  }
  const scrolls = event.target.matches(".scroll, pre") && event.target.scrollWidth > event.target.clientWidth;
  const keys = {
    j: () => choose(chosen + 1),
    k: () => choose(chosen - 1),
    s: () => follow("a[data-split]"),
    u: () => follow("a[data-up]"),
    "?": () => document.getElementById("keys").showModal(),
    "/": () => document.querySelector("[data-search]")?.focus(),
    x: () => items()[chosen]?.querySelector("a[data-plan]")?.click(),
    r: () => items()[chosen]?.querySelector("form[data-review] button")?.click(),
    Escape: closePlan,
  };
  if (!scrolls) {
    keys.ArrowLeft = () => follow("a[data-older]");
    keys.ArrowRight = () => follow("a[data-newer]");
  }
  if (keys[event.key]) {
    if (event.key !== "Escape") event.preventDefault();
    keys[event.key]();
  }
});

// files whose lines are loaded when they come into view

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    load(entry.target);
  }
}, { rootMargin: "400px" });

async function load(place) {
  try {
    const answer = await fetch(place.dataset.lazy);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceWith(...page.body.childNodes);
  } catch {
    // the link in it still works
  }
}

document.querySelectorAll("[data-lazy]").forEach((each) => seen.observe(each));

// states: a value is loaded when it is opened

document.addEventListener("toggle", async (event) => {
  const node = event.target;
  if (!node.open || !node.dataset || !node.dataset.tree) return;
  const address = node.dataset.tree;
  delete node.dataset.tree;
  const answer = await fetch(address);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  node.querySelector("summary + a")?.replaceWith(...page.body.childNodes);
}, true);

document.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-more] a");
  if (!link) return;
  event.preventDefault();
  const answer = await fetch(link.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  link.closest("li").replaceWith(...page.querySelectorAll("ul.tree > li"));
});

// what is new: rows are asked for at most once a second, and one request at a time, however many checkpoints come

const rows = document.getElementById("rows");
if (rows && rows.dataset.live) {
  let known = rows.dataset.newest; // what is saved before the events begin is noticed, too
  let asked = known;
  let waiting = false;
  const update = async () => {
    asked = known;
    if (!rows.dataset.rows) {
      document.querySelector(".news").hidden = false;
      return;
    }
    const answer = await fetch(rows.dataset.rows);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const key = items()[chosen]?.dataset.key;
    rows.replaceChildren(...page.body.childNodes);
    chosen = items().findIndex((each) => each.dataset.key === key);
    if (chosen >= 0) items()[chosen].classList.add("chosen");
  };
  const schedule = () => {
    if (waiting || known === asked) return;
    waiting = true;
    setTimeout(async () => {
      await update().catch(() => {});
      waiting = false;
      schedule();
    }, 1000);
  };
  let events = null; // only while the page is seen: a browser has few connections to a server, for all its tabs
  const listen = () => {
    if (document.hidden) {
      if (events) events.close();
      events = null;
    } else if (!events) {
      events = new EventSource(rows.dataset.live);
      events.onmessage = (event) => {
        known = JSON.parse(event.data).newest;
        schedule();
      };
    }
  };
  document.addEventListener("visibilitychange", listen);
  listen();
}

// the focus stays on the link that it is on

function replaceWithFocus(place, found) {
  const at = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  place.replaceWith(found);
  if (at) [...found.querySelectorAll("a")].find((each) => each.getAttribute("href") === at)?.focus({ preventScroll: true });
}

// work that goes on: its state is asked for once a second until it has ended

async function poll(place, wait) {
  if (!document.hidden) {
    const answer = await fetch(place.dataset.poll).catch(() => null);
    const page = new DOMParser().parseFromString(answer && answer.ok ? await answer.text() : "", "text/html");
    const found = page.body.firstElementChild;
    if (found) replaceWithFocus(place, found);
    wait = found ? 1000 : Math.min(2 * wait, 30000); // the server may be busy, or gone
    place = found || place;
  }
  if (place.dataset.poll) setTimeout(() => poll(place, wait), wait);
}

document.querySelectorAll("[data-poll]").forEach((each) => setTimeout(() => poll(each, 1000), 1000));

// how long ago

function ago(seconds) {
  if (seconds < 5) return "now";
  for (const [limit, unit, size] of [[60, "s", 1], [3600, "min", 60], [86400, "h", 3600], [1209600, "d", 86400]]) {
    if (seconds < limit) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return null;
}

setInterval(() => {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const text = ago((Date.now() - Date.parse(each.dateTime)) / 1000);
    if (text && each.textContent !== text) each.textContent = text;
  }
}, 10000);
