"use strict";
// Makes the page better: shows times in the reader's zone, keeps the page up to date, and chooses all refunds at once.
// The page works without it. It loads nothing but the page itself.
(() => {
  const two = (number) => String(number).padStart(2, "0");
  const nameOfZone = (date) =>
    new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(date)
      .find((part) => part.type === "timeZoneName").value;

  // Puts the reader's own time before each time in UTC.
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const date = new Date(time.dateTime);
      if (time.dataset.local || Number.isNaN(date.getTime()) || date.getTimezoneOffset() === 0) continue;
      const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
      const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
      const utc = document.createElement("span");
      utc.className = "utc";
      utc.textContent = ` (${time.textContent})`;
      const isClock = time.classList.contains("clock");
      time.textContent = isClock ? `${clock} ${nameOfZone(date)}` : `${day} ${clock} ${nameOfZone(date)}`;
      time.append(utc);
      time.dataset.local = "yes";
    }
  };

  // The element of the new part that stands for the focused one: the link with the same target, or the same id.
  const same = (part, focused) => {
    if (focused.id) return part.querySelector(`#${CSS.escape(focused.id)}`);
    const href = focused.getAttribute("href");
    if (href !== null) return part.querySelector(`a[href="${CSS.escape(href)}"]`);
    const place = [...focused.closest("[data-live]").querySelectorAll(focused.localName)].indexOf(focused);
    return part.querySelectorAll(focused.localName)[place] ?? null;
  };

  // Replaces a part of the page, unless that would disturb the reader. Answers whether it did.
  const replace = (old, part) => {
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && chosen.containsNode(old, true)) return false;
    // A field that somebody has begun to fill in.
    const isBegun = (field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked;
    const isChosen = (option) => option.selected !== option.defaultSelected;
    if ([...old.querySelectorAll("input")].some(isBegun)) return false;
    if ([...old.querySelectorAll("option")].some(isChosen)) return false;
    const opened = [...old.querySelectorAll("details")].map((details) => details.open);
    part.querySelectorAll("details").forEach((details, nth) => { details.open = opened[nth] ?? false; });
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const successor = focused && same(part, focused);
    if (focused && !successor) return false;
    localise(part);
    old.replaceWith(part);
    successor?.focus({ preventScroll: true });
    return true;
  };

  const seconds = Number(document.body.dataset.every);
  const freshness = document.getElementById("freshness");
  const sources = new Map();
  let updated = new Date();

  const remember = (root) => {
    for (const part of root.querySelectorAll("[data-live]")) sources.set(part.id, part.outerHTML);
  };

  const update = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = page.getElementById(old.id);
      if (!part || sources.get(old.id) === part.outerHTML) continue;
      const source = part.outerHTML;
      if (replace(old, document.importNode(part, true))) sources.set(old.id, source);
    }
    updated = new Date();
    freshness.textContent = "";
  };

  const loop = async () => {
    if (document.visibilityState === "visible") {
      try {
        await update();
      } catch (error) {
        const clock = `${two(updated.getHours())}:${two(updated.getMinutes())}:${two(updated.getSeconds())}`;
        freshness.textContent = `Not updated since ${clock}: the node does not answer (${error.message}). Trying again.`;
      }
    }
    setTimeout(loop, seconds * 1000);
  };

  // One box that chooses all refunds of the page.
  const all = document.getElementById("all");
  if (all) {
    all.closest("[hidden]").hidden = false;
    const boxes = () => document.querySelectorAll("input[name=refund]");
    all.addEventListener("change", () => boxes().forEach((box) => { box.checked = all.checked; }));
  }

  remember(document);
  localise(document);
  if (seconds > 0) {
    setTimeout(loop, seconds * 1000);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") update().catch(() => {});
    });
  }
})();
