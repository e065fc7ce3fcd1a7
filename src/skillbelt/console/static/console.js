// Page behaviour beyond links and forms: live updates, keyboard shortcuts, a count in the title.
"use strict";
(() => {
  const root = document.body.dataset.root;
  const spoken = document.getElementById("spoken");
  const plainTitle = document.title.replace(/^\(\d+\) /, "");
  let known = Number(document.getElementById("badge")?.textContent ?? 0);
  let timer = 0;

  const live = () => document.getElementById("live");

  const refresh = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const address = location.pathname + location.search.replace(/([?&])notice=[^&]*&?/, "$1");
      window.htmx.ajax("GET", address, { target: "#live", select: "#live", swap: "outerMorph" });
    }, 60);
  };

  const count = (number) => {
    document.title = (number ? `(${number}) ` : "") + plainTitle;
    const badge = document.getElementById("badge");
    if (badge) {
      badge.textContent = String(number);
      badge.hidden = number === 0;
    }
    if (number > known) {
      spoken.textContent = number === 1 ? "One request waits" : `${number} requests wait`;
      if (document.hidden && "Notification" in window && Notification.permission === "granted") {
        new Notification("skillbelt asks", { body: spoken.textContent, tag: "skillbelt" });
      }
    }
    known = number;
  };

  if ("signedIn" in document.body.dataset) {
    const source = new EventSource(`${root}/events`);
    source.addEventListener("inbox", (event) => {
      count(JSON.parse(event.data).count);
      if (live()?.dataset.live === "inbox") refresh();
    });
    // Fetch what happened between rendering the page and starting the stream.
    source.addEventListener("hello", () => {
      if (["runs", "log", "installs"].includes(live()?.dataset.live)) refresh();
    });
    for (const kind of ["runs", "log", "installs"]) {
      source.addEventListener(kind, () => {
        if (live()?.dataset.live === kind) refresh();
      });
    }
    addEventListener("pagehide", () => source.close());
  }

  const notify = document.getElementById("notify");
  if (notify && "Notification" in window && Notification.permission === "default") {
    notify.hidden = false;
    notify.addEventListener("click", async () => {
      await Notification.requestPermission();
      notify.hidden = true;
    });
  }

  // Stay at the end of growing output, unless the reader scrolled up.
  const follow = () => {
    for (const one of document.querySelectorAll("[data-follow]")) {
      if (one.dataset.follow !== "off") one.scrollTop = one.scrollHeight;
    }
  };
  document.addEventListener("scroll", (event) => {
    const one = event.target;
    if (one instanceof HTMLElement && "follow" in one.dataset) {
      one.dataset.follow = one.scrollTop + one.clientHeight < one.scrollHeight - 8 ? "off" : "on";
    }
  }, true);
  document.addEventListener("htmx:after:swap", follow);
  follow();

  // An element with the pointer or the focus stays in place when requests come and go. Where that is
  // not possible, answer buttons are disabled for a moment: a click was meant for another request.
  const REST = 700;
  let pointer = null;
  let held = null;
  let resting = 0;
  addEventListener("pointermove", (event) => {
    pointer = { x: event.clientX, y: event.clientY };
  }, { passive: true });

  const hold = () => {
    const under = pointer ? document.elementFromPoint(pointer.x, pointer.y) : null;
    const focused = document.activeElement?.closest?.("[data-card]") ?? null;
    const card = under?.closest?.("[data-card]") ?? focused;
    held = card ? { card, focused: card === focused, at: choices().indexOf(card),
      top: card.getBoundingClientRect().top } : null;
  };

  const rest = () => {
    clearTimeout(resting);
    document.body.dataset.moved = "";
    resting = setTimeout(() => delete document.body.dataset.moved, REST);
  };

  const keep = () => {
    if (!held) return;
    const { card, focused, at, top } = held;
    held = null;
    if (!card.isConnected) {
      rest();
      const next = choices()[Math.min(at, choices().length - 1)];
      if (focused) (next ?? document.getElementById("main")).focus({ preventScroll: true });
      if (focused) next?.scrollIntoView({ block: "nearest" });
      return;
    }
    scrollBy(0, card.getBoundingClientRect().top - top);
    if (Math.abs(card.getBoundingClientRect().top - top) > 2) rest();
  };
  document.addEventListener("htmx:before:swap", hold);
  document.addEventListener("htmx:after:swap", keep);
  document.addEventListener("click", (event) => {
    if (event.detail && "moved" in document.body.dataset && event.target.closest(".answers button")) {
      event.preventDefault();
      event.stopPropagation();
    }
  }, true);

  // Keyboard shortcuts act on the selected card or row only.
  const choices = () => [...document.querySelectorAll("[data-card], [data-row]")];
  const chosen = () => document.activeElement?.closest?.("[data-card], [data-row]")
    ?? document.querySelector(".chosen");

  const move = (step) => {
    const all = choices();
    if (!all.length) return;
    const at = all.indexOf(chosen());
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    for (const one of all) one.classList.toggle("chosen", one === next && "row" in one.dataset);
    const link = "row" in next.dataset ? next.querySelector("a") : null;
    (link ?? next).focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  const act = (key) => {
    const card = chosen();
    if (!card || !("card" in card.dataset)) return false;
    if (key === "n") {
      const reason = card.querySelector("[data-reason]");
      reason?.focus();
      return Boolean(reason);
    }
    const button = card.querySelector(`[data-key="${key}"]`);
    button?.click();
    return Boolean(button);
  };

  const press = (key) => {
    if (key === "j" || key === "k") return move(key === "j" ? 1 : -1), true;
    if ("oca".includes(key) || key === "n") return act(key);
    if (key === "/") {
      const field = document.querySelector("input[type=search]");
      if (field) field.focus();
      else location.assign(`${root}/skills`);
      return true;
    }
    if (key === "?") return document.getElementById("keys").showModal(), true;
    const link = /^[1-9]$/.test(key) ? document.querySelectorAll("nav a")[Number(key) - 1] : null;
    link?.click();
    return Boolean(link);
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key.length !== 1) {
      if (event.key === "Escape" && document.activeElement?.matches("input")) {
        (document.activeElement.closest("[data-card]") ?? document.getElementById("main")).focus();
      }
      return;
    }
    if (event.repeat && !"jk".includes(event.key)) return;
    if (event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]")) return;
    if (press(event.key)) event.preventDefault();
  });
})();
