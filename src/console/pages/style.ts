import { style } from "../../pages/style.ts";

/** The style of the console: that of every page, and what wide pages need. */
export const consoleStyle = `${style}
.brand { font-weight: 700; color: var(--ink); }
.console header { max-width: none; padding: 0; background: var(--sheet); border-bottom: 1px solid var(--hairline); }
.bar {
  display: flex; flex-wrap: wrap; align-items: center; gap: .25rem 1.25rem;
  max-width: 72rem; margin: 0 auto; padding: .5rem 1.25rem; font-weight: 400;
}
nav { display: flex; flex-wrap: wrap; gap: .25rem; flex: 1 1 auto; }
nav a {
  display: inline-flex; align-items: center; min-height: 2.5rem; padding: 0 .75rem;
  border-radius: .375rem; color: var(--ink); text-decoration: none;
}
nav a:hover { text-decoration: underline; }
nav a[aria-current] { background: var(--ground); font-weight: 600; }
.who { display: flex; align-items: center; gap: .75rem; }
.skip { position: absolute; left: -100vw; top: .5rem; padding: .5rem 1rem; background: var(--sheet); }
.skip:focus { left: .5rem; z-index: 1; }
.console main {
  max-width: 72rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; background: none; border: 0; border-radius: 0;
}
main:focus { outline: none; }
.console h2 { margin: 2rem 0 .5rem; font-size: 1.125rem; }
.console h4 { margin: .75rem 0 .125rem; font-size: .9375rem; }
.console h3 { margin: 1rem 0 .25rem; font-size: 1rem; }
.sheet {
  margin: .75rem 0; padding: 1rem 1.25rem; background: var(--sheet);
  border: 1px solid var(--hairline); border-radius: .75rem;
}
.sheet > :first-child { margin-top: 0; }
.sheet > :last-child { margin-bottom: 0; }
.narrow { max-width: 36rem; }
.empty { padding: 2rem 1.25rem; text-align: center; color: var(--quiet); }
.console dl { gap: .5rem 1.5rem; }
.console dd { font-weight: 400; }
.console dd, .console li, .console td { font-variant-numeric: tabular-nums; }
code, pre, textarea { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9375em; }
code { overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .75rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--ground); border-radius: .375rem; }
table { width: 100%; border-collapse: separate; border-spacing: 0; overflow: hidden; background: var(--sheet); border: 1px solid var(--hairline); border-radius: .75rem; }
th, td { padding: .5rem 1rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { font-size: .875rem; font-weight: 600; color: var(--quiet); }
tr + tr td { border-top: 1px solid var(--hairline); }
thead + tbody td { border-top: 1px solid var(--hairline); }
td .actions { margin: 0; }
td a + a { margin-left: .75rem; }
table + p { margin-top: .75rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 30rem) { .console dl { grid-template-columns: 1fr; gap: 0; } .console dd { margin-bottom: .5rem; } nav { margin-left: -.75rem; } }
@media (max-width: 44rem) {
  table, tbody, tr, td { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  tr { padding: .5rem 0; }
  tr + tr { border-top: 1px solid var(--hairline); }
  tr td, tr + tr td, thead + tbody td { display: grid; grid-template-columns: 7rem 1fr; gap: .75rem; border: 0; padding: .25rem 1rem; }
  td::before { content: attr(data-label); color: var(--quiet); font-size: .875rem; }
}
.state { font-weight: 600; }
.state.good::before { content: "\\25CF\\00A0"; color: #15803d; }
.state.bad { color: var(--error-line); }
.state.bad::before { content: "\\25B2\\00A0"; }
.tools { display: flex; flex-wrap: wrap; align-items: end; gap: .75rem; margin: 1rem 0; }
.tools .field { flex: 1 1 12rem; margin: 0; }
.tools button { flex: 0 0 auto; }
textarea {
  width: 100%; min-height: 6rem; padding: .5rem .75rem; color: inherit; background: var(--sheet);
  border: 1px solid var(--line); border-radius: .375rem; resize: vertical;
}
.hint { display: block; font-size: .875rem; font-weight: 400; color: var(--quiet); }
.console .actions button, .button { flex: 0 0 auto; }
a.button {
  display: inline-flex; align-items: center; min-height: 2.75rem; padding: .5rem 1.25rem; font-weight: 600;
  border: 1px solid var(--line); border-radius: .375rem; color: var(--ink); text-decoration: none;
}
button.danger { border-color: var(--error-line); color: var(--error-line); }
button.small { min-height: 2rem; padding: .125rem .75rem; flex: 0 0 auto; }
.group { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: 0 1.25rem; }
.after { margin-top: 1.5rem; }
.note.done { border-left-color: #15803d; background: var(--sheet); }
summary { min-height: 2rem; cursor: pointer; font-weight: 600; }
@media (prefers-reduced-motion: no-preference) {
  button, nav a { transition: filter .1s, background-color .1s; }
}
`;

/** The picture that a browser shows beside the title. */
export const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1d4ed8"/><path d="M4 13V7a4 4 0 0 1 8 0v6M8 3v10M4 9h8" fill="none" stroke="#fff" stroke-width="1.5"/></svg>`;
