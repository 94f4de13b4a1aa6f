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
      const thousandths = time.dateTime.includes(".") ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : "";
      const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${thousandths}`;
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
    const summary = focused.localName === "summary" && focused.closest("details[id]");
    if (summary) return part.querySelector(`#${CSS.escape(summary.id)} > summary`);
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
    const opened = [...old.querySelectorAll("details")];
    part.querySelectorAll("details").forEach((details, nth) => {
      const before = details.id ? opened.find((one) => one.id === details.id) : opened[nth];
      details.open = before?.open ?? false;
    });
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const successor = focused && same(part, focused);
    if (focused && !successor) return false;
    localise(part);
    old.replaceWith(part);
    successor?.focus({ preventScroll: true });
    return true;
  };

  // Says what is new in a list in which the reader chooses: the list itself stays, and so does what is chosen.
  const news = document.getElementById("news");
  const rows = (root) => [...root.querySelectorAll("[data-row]")].map((row) => row.dataset.row);
  const tell = (page) => {
    const [old, now] = [rows(document), rows(page)];
    const id = (row) => row.split("@")[0];
    const known = old.map(id);
    const added = now.filter((row) => !known.includes(id(row))).length;
    const left = old.filter((row) => !now.includes(row)).length;
    news.hidden = added + left === 0;
    const noun = (count) => `${news.dataset.noun}${count === 1 ? "" : "s"}`;
    const parts = [];
    if (added > 0) parts.push(`${added} new ${noun(added)}`);
    if (left > 0) parts.push(`${left} ${noun(left)} of this page moved on`);
    const text = parts.join(", ");
    if (news.dataset.said === text) return;
    news.dataset.said = text;
    const reload = document.createElement("a");
    reload.href = location.href;
    reload.textContent = "reload";
    news.replaceChildren(`${text}: `, reload);
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
    if (news) tell(page);
    updated = new Date();
    freshness.textContent = "";
  };

  const loop = async () => {
    if (document.visibilityState === "visible") {
      try {
        await update();
      } catch (error) {
        const clock = `${two(updated.getHours())}:${two(updated.getMinutes())}:${two(updated.getSeconds())}`;
        freshness.textContent = `Not updated since ${clock} (${error.message}). Trying again.`;
      }
    }
    setTimeout(loop, seconds * 1000);
  };

  // A calendar in the reader's zone beside each field for a moment. It fills the field in UTC.
  for (const field of document.querySelectorAll("input[data-moment]")) {
    const [label, picker] = [document.createElement("label"), document.createElement("input")];
    picker.type = "datetime-local";
    label.append(`${field.dataset.moment} in your time, ${nameOfZone(new Date())}`, picker);
    picker.addEventListener("change", () => {
      const date = new Date(picker.value);
      if (!Number.isNaN(date.getTime())) field.value = `${date.toISOString().slice(0, 19)}Z`;
    });
    field.closest("label").after(label);
  }

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
