"use strict";
(() => {
  const list = document.getElementById("list");
  const form = document.getElementById("filter");
  const pages = document.getElementById("pages");
  const size = Number(list.dataset.page);
  const articles = [...list.querySelectorAll("article")];
  const texts = new Map();
  let matching = articles;
  let page = 0;

  const textOf = (article) => {
    if (!texts.has(article)) texts.set(article, article.textContent.toLowerCase());
    return texts.get(article);
  };
  const matches = (article, want) =>
    (!want.model || article.dataset.model === want.model) &&
    (!want.outcome || article.dataset.outcome === want.outcome) &&
    (!want.field || article.dataset.fields.split(" ").includes(want.field)) &&
    (!want.text || textOf(article).includes(want.text.toLowerCase()));
  const show = () => {
    const last = Math.max(1, Math.ceil(matching.length / size));
    page = Math.min(Math.max(page, 0), last - 1);
    const visible = new Set(matching.slice(page * size, (page + 1) * size));
    for (const article of articles) article.hidden = !visible.has(article);
    for (const chunk of list.children) chunk.hidden = !chunk.querySelector("article:not([hidden])");
    const [back, on] = pages.querySelectorAll("button");
    back.disabled = page === 0;
    on.disabled = page === last - 1;
    pages.hidden = last === 1;
    document.getElementById("place").textContent = `page ${page + 1} of ${last}`;
    document.getElementById("shown").textContent =
      `${matching.length} of ${articles.length} attempts`;
  };
  const filter = () => {
    const want = Object.fromEntries(new FormData(form));
    matching = articles.filter((article) => matches(article, want));
    page = 0;
    show();
  };
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !list.contains(target)) return;
    if (!matching.includes(target)) {
      form.reset();
      matching = articles;
    }
    page = Math.floor(matching.indexOf(target) / size);
    show();
    target.scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  pages.addEventListener("click", (event) => {
    const step = Number(event.target.dataset.step);
    if (!step) return;
    page += step;
    show();
    document.getElementById("attempts").focus();
  });
  window.addEventListener("hashchange", follow);
  show();
  follow();
})();
