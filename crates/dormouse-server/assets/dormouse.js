// Makes the pages live. Without it they still work: every page is complete, every form is a plain form.
(() => {
  "use strict";
  const html = document.documentElement;
  const root = html.dataset.root;
  const byId = (id) => document.getElementById(id);

  // Light or dark: the system's choice until the button says otherwise.
  const theme = byId("theme");
  const isDark = () => (html.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const tellTheme = () => { theme.textContent = isDark() ? "Light mode" : "Dark mode"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    html.dataset.theme = isDark() ? "light" : "dark";
    document.cookie = `dormouse_theme=${html.dataset.theme}; path=${root || "/"}; max-age=31536000; samesite=lax`;
    tellTheme();
  });
  tellTheme();

  // Choosing rows of a list.
  const chosen = () => document.querySelectorAll('input[name="id"]:checked').length;
  const tellChosen = () => {
    const count = byId("chosen-count");
    if (count) count.textContent = chosen() ? `${chosen()} chosen` : "";
  };
  const showChooseAll = () => { const all = byId("choose-all"); if (all) all.hidden = false; };
  document.addEventListener("change", (event) => {
    if (event.target.id === "choose-all") {
      for (const box of document.querySelectorAll('input[name="id"]')) box.checked = event.target.checked;
    }
    tellChosen();
  });
  showChooseAll();
  tellChosen();

  // The slash goes to the field that goes to an instance.
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && byId("go")) {
      event.preventDefault();
      byId("go").focus();
    }
  });

  // Copying a command, where the browser allows it.
  if (navigator.clipboard) {
    for (const button of document.querySelectorAll("button[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", () => navigator.clipboard.writeText(button.dataset.copy)
        .then(() => { button.textContent = "Copied"; }, () => { button.hidden = true; }));
    }
  }

  // A slider shows its moment when it is let go.
  document.querySelector("form[data-slides]")?.addEventListener("change", (event) => event.currentTarget.requestSubmit());

  // A form that goes on by itself, with a breath in between.
  const goesOn = document.querySelector("form[data-goes-on]");
  if (goesOn) setTimeout(() => goesOn.requestSubmit(), 250);

  // Show a notice once: a reload does not show it again.
  if (byId("notice")) {
    const address = new URL(location.href);
    address.searchParams.delete("notice");
    history.replaceState(null, "", address);
  }

  // Makes one element like another and keeps equal parts, so that focus, selections and typed text stay.
  const kept = new Set(["open", "value", "checked", "hidden"]);
  const morph = (from, to) => {
    for (const { name, value } of [...to.attributes]) {
      if (!kept.has(name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      if (!kept.has(name) && !to.hasAttribute(name)) from.removeAttribute(name);
    }
    if (from.nodeName === "TEXTAREA") return;
    const wanted = new Set([...to.children].map((child) => child.id).filter(Boolean));
    const named = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = from.firstChild;
    const drop = () => { const gone = at; at = at.nextSibling; gone.remove(); };
    for (const next of [...to.childNodes]) {
      while (at && at.id && !wanted.has(at.id)) drop();
      const isLike = (node) => node && node.nodeName === next.nodeName && (node.id || "") === (next.id || "");
      const same = next.id ? named.get(next.id) : isLike(at) ? at : null;
      if (!isLike(same)) { from.insertBefore(document.importNode(next, true), at); continue; }
      if (same === at) at = at.nextSibling; else from.insertBefore(same, at);
      if (next.nodeType === Node.ELEMENT_NODE) morph(same, next);
      else if (same.nodeValue !== next.nodeValue) same.nodeValue = next.nodeValue;
    }
    while (at) drop();
  };

  // Loads the page again and applies the changes.
  const live = byId("live");
  const tellLive = (state, words) => { live.dataset.state = state; live.querySelector(".word").textContent = words; };
  const announce = (text) => { byId("announcer").textContent = text; };
  const regions = () => document.querySelectorAll("[data-live]");
  if (!regions().length) { live.hidden = true; return; }
  const pauseMs = 1000 * Number(document.querySelector("[data-live-every]")?.dataset.liveEvery || 1);
  let looking = false, again = false, lookedAt = 0, timer = 0;

  const look = async () => {
    timer = 0;
    if (looking) { again = true; return; }
    looking = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      // Announce only changes in substance: ages in a sentence change all the time.
      const told = () => [...document.querySelectorAll("[data-announce]")];
      const before = new Set(told().map((one) => one.dataset.announce));
      for (const region of regions()) {
        const next = page.getElementById(region.id);
        if (next) morph(region, next);
      }
      const article = byId("instance"), next = page.getElementById("instance");
      if (article && next) article.dataset.status = next.dataset.status;
      const news = told().filter((one) => !before.has(one.dataset.announce));
      if (news.length) announce(news.map((one) => one.textContent).join(" "));
      showChooseAll();
      tellChosen();
    } catch {
      tellLive("lost", "cannot reach the server");
    } finally {
      looking = false;
      lookedAt = Date.now();
      if (again) { again = false; soon(); }
    }
  };
  const soon = () => { if (!timer && !document.hidden) timer = setTimeout(look, Math.max(60, lookedAt + pauseMs - Date.now())); };

  // One stream for each visible page. A page that becomes visible again refreshes at once.
  let stream = null;
  const open = () => {
    const of = byId("instance")?.dataset.instance;
    stream = new EventSource(`${root}/live${of ? `?instance=${of}` : ""}`);
    stream.onopen = () => { tellLive("on", "live"); soon(); };
    stream.onerror = () => tellLive("lost", stream && stream.readyState === 2 ? "not live: reload the page" : "reconnecting");
    stream.addEventListener("change", soon);
    stream.addEventListener("progress", soon);
    stream.addEventListener("reset", soon);
  };
  const close = () => { stream?.close(); stream = null; tellLive("off", "not live"); };
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else if (!stream) open(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted && !stream) open(); });
  // Ages grow and queues are paused without a transition.
  setInterval(soon, 10000);
  open();
})();
