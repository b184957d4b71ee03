// Keeps the page up to date: hears of changes through /live, fetches the page's changing
// part from the server and puts into place what differs. Everything works without it.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const all = (sel, f) => document.querySelectorAll(sel).forEach(f);
  let skew = 0, source = null, live = false, busy = false, again = false, last = Date.now(), lost = false;

  // Instants in the viewer's zone, and spans of time that go on.
  const pad = (n) => String(n).padStart(2, "0");
  const unit = (n, name) => (n ? n + name : "");
  const span = (s) => {
    if (s <= 0) return "0s";
    if (s < 60) return s + "s";
    if (s < 3600) return unit((s / 60) | 0, "m") + unit(s % 60, "s");
    const m = Math.round(s / 60), h = Math.round(s / 3600);
    if (m < 2880) return unit((m / 60) | 0, "h") + unit(m % 60, "m");
    return unit((h / 24) | 0, "d") + unit(h % 24, "h");
  };
  const write = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  const localise = () => all("[data-t]", (el) => {
    const at = new Date(+el.dataset.t), axis = el.classList.contains("axis");
    const day = at.toDateString() === new Date().toDateString() || axis ? "" :
      at.toLocaleString("en", { month: "short", day: "numeric" }) + " ";
    write(el, el.textContent.replace(/(?:[A-Z][a-z]{2} \d+ )?\d\d:\d\d(:\d\d)?( UTC)?/, (_, seconds) =>
      day + pad(at.getHours()) + ":" + pad(at.getMinutes()) + (seconds ? ":" + pad(at.getSeconds()) : "")));
  });
  const tick = () => {
    const now = Date.now() + skew;
    all("[data-until]", (el) => {
      const left = el.dataset.until - now;
      write(el, span(Math.ceil(left / 1000)));
      if (left <= 0 && left > -1500) refresh();
    });
    all("[data-ago]", (el) => write(el, span(Math.ceil((now - el.dataset.ago) / 1000)) + " ago"));
    all("[data-since]", (el) => write(el, span(Math.ceil((now - el.dataset.since) / 1000))));
    const every = lost || $("main").dataset.stale !== undefined ? 2000 : live ? 15000 : 3000;
    if (Date.now() - last >= every) refresh();
  };

  // What changes is put in place; what stays keeps its focus, its ticks and its place.
  const key = (el) => el.nodeType === 1 && (el.id || el.dataset.k);
  const morph = (a, b) => {
    for (const { name } of [...a.attributes])
      if (!b.hasAttribute(name) && !(name === "open" && a.nodeName === "DETAILS")) a.removeAttribute(name);
    for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    const known = new Map();
    for (const c of a.children) if (key(c)) known.set(key(c), c);
    let at = a.firstChild;
    for (const n of [...b.childNodes]) {
      const k = key(n), m = k ? known.get(k) : at && !key(at) ? at : null;
      if (!m || m.nodeName !== n.nodeName) { a.insertBefore(n, at); continue; }
      if (m === at) at = at.nextSibling;
      else (a.moveBefore || a.insertBefore).call(a, m, at);
      if (n.nodeType === 1) morph(m, n);
      else if (m.nodeValue !== n.nodeValue) m.nodeValue = n.nodeValue;
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  const said = () => {
    const m = new Map();
    all("[data-say]", (el) => m.set(el.dataset.k, el.dataset.say));
    return m;
  };
  const settle = () => {
    const main = $("main");
    skew = main.dataset.now - Date.now();
    document.title = main.dataset.title;
    localise();
    const box = $("all");
    if (box) { box.hidden = false; count(); }
  };
  const held = () => $("main").dataset.hold !== undefined && document.querySelector(".pick:checked");
  const status = () => {
    const text = $("main").dataset.live === undefined ? "" : lost ? "Tidegate does not answer; trying again" :
      held() ? "Holds still while jobs are ticked" : live ? "Live" : "Looks every 3 s";
    write($("live"), text);
    $("live").className = lost ? "lost" : live ? "on" : "";
  };
  async function refresh() {
    if (busy) { again = true; return; }
    if (document.hidden || $("main").dataset.live === undefined || held()) return;
    busy = true;
    last = Date.now();
    try {
      const r = await fetch(location.href, { headers: { "X-Tidegate-Part": "1" }, cache: "no-store", signal: AbortSignal.timeout(15000) });
      if (r.status === 401 || r.redirected) return location.reload();
      const next = new DOMParser().parseFromString(await r.text(), "text/html").getElementById("main");
      if (!next) throw new Error("no page");
      if (!held()) {
        const before = said();
        morph($("main"), next);
        settle();
        const news = [];
        said().forEach((text, k) => { if (before.has(k) && before.get(k) !== text) news.push(text); });
        if (news.length) $("say").textContent = news.join(". ");
      }
      lost = false;
    } catch (e) {
      lost = true;
    } finally {
      busy = false;
      last = Date.now();
      status();
      if (again) { again = false; refresh(); }
    }
  }
  const connect = () => {
    if (source) source.close();
    source = null;
    live = false;
    if (document.hidden || $("main").dataset.live === undefined) return;
    source = new EventSource("/live");
    source.addEventListener("ready", () => { live = true; status(); refresh(); });
    source.addEventListener("change", refresh);
    source.onerror = () => { live = false; status(); };
  };
  document.addEventListener("visibilitychange", () => { connect(); refresh(); });
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (e) => { if (e.persisted) { connect(); refresh(); } });

  // Keys, and the ticks of a list.
  const count = () => {
    const n = document.querySelectorAll(".pick:checked").length, boxes = document.querySelectorAll(".pick").length;
    write($("picked"), n ? "The " + n + " ticked" : "The ticked ones");
    $("all").checked = n > 0 && n === boxes;
    $("all").indeterminate = n > 0 && n < boxes;
    status();
  };
  document.addEventListener("change", (e) => {
    if (e.target.id === "all") all(".pick", (b) => { b.checked = e.target.checked; });
    if (e.target.id !== "all" && !e.target.classList.contains("pick")) return;
    const ticked = document.querySelector('#act [name=scope][value=""]');
    if (ticked) ticked.checked = true;
    count();
    if (!held()) refresh();
  });
  document.addEventListener("keydown", (e) => {
    const q = $("q"), typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.nodeName) && !/^(checkbox|radio)$/.test(e.target.type);
    if (e.key === "/" && q && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); q.focus(); q.select(); }
    if (e.key === "Escape" && e.target === q) q.blur();
  });

  settle();
  all(".zone", (el) => write(el, "Times are in your zone, " + Intl.DateTimeFormat().resolvedOptions().timeZone + "; in UTC where the pointer rests."));
  tick();
  setInterval(tick, 1000);
  connect();
  status();
})();
