import { style } from "../../core/base/html.ts";

export const consoleStyle = `${style}
.brand { display: inline-flex; align-items: center; gap: .5rem; font-weight: 700; color: var(--ink); }
.console { --small: .8125rem; --body: .9375rem; --heading: 1.125rem; --title: 1.5rem; font-size: var(--body); }
.console header { max-width: none; padding: 0; background: var(--sheet); border-bottom: 1px solid var(--hairline); }
.bar {
  display: flex; flex-wrap: wrap; align-items: center; gap: 0 1.5rem;
  max-width: 120rem; margin: 0 auto; padding: 0 1.5rem; font-weight: 400;
}
nav { display: flex; flex-wrap: wrap; gap: 0 .25rem; flex: 1 1 auto; }
nav a {
  display: inline-flex; align-items: center; min-height: 3.25rem; padding: 0 .75rem;
  border-block: 2px solid transparent; color: var(--quiet); text-decoration: none;
}
nav a:hover { color: var(--ink); border-bottom-color: var(--line); }
nav a[aria-current] { color: var(--ink); font-weight: 600; border-bottom-color: var(--accent); }
nav a:focus-visible { outline-offset: -3px; }
.find { flex: 0 1 16rem; }
.console .find input { min-height: 2.25rem; }
::placeholder { color: var(--quiet); opacity: 1; }
.who { display: flex; align-items: center; gap: .75rem; }
.skip { position: absolute; left: -100vw; top: .5rem; padding: .5rem 1rem; background: var(--sheet); }
.skip:focus { left: .5rem; z-index: 1; }
.console main {
  max-width: 120rem; margin: 0 auto; padding: 1.75rem 1.5rem 4rem; background: none; border: 0; border-radius: 0;
}
main:focus { outline: none; }
.head { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1.5rem; margin-bottom: 1rem; }
.head h1 { flex: 1 1 auto; margin: 0; }
.console .head .actions { margin: 0; }
.path { margin-bottom: .25rem; font-size: var(--small); }
.console h2 { margin: 2.25rem 0 .625rem; font-size: var(--heading); }
.console h3 { margin: 1rem 0 .25rem; font-size: var(--body); }
.console footer { max-width: none; margin-top: 2.5rem; padding: 0; font-size: var(--small); }
.console p.quiet, .console .note p { max-width: 60rem; }
.sheet {
  margin: .75rem 0; padding: 1.25rem 1.5rem; background: var(--sheet);
  border: 1px solid var(--hairline); border-radius: .625rem; box-shadow: 0 1px 2px rgb(0 0 0 / .04);
}
.sheet > :first-child, .console .sheet > h2:first-child { margin-top: 0; }
.sheet > :last-child { margin-bottom: 0; }
.narrow { max-width: 40rem; }
.empty { padding: 2.5rem 1.5rem; text-align: center; color: var(--quiet); text-wrap: balance; }
.console dl { grid-template-columns: minmax(9rem, auto) 1fr; gap: .5rem 1.5rem; }
.console dd { font-weight: 400; }
.console dd, .console li, .console td { font-variant-numeric: tabular-nums; }
code, pre, textarea { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9375em; }
code { overflow-wrap: anywhere; unicode-bidi: isolate; }
.console button { overflow-wrap: normal; }
pre { margin: .5rem 0; padding: .75rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--sheet); border: 1px solid var(--hairline); border-radius: .375rem; }
table {
  width: 100%; border-collapse: separate; border-spacing: 0; overflow: hidden; background: var(--sheet);
  border: 1px solid var(--hairline); border-radius: .625rem; box-shadow: 0 1px 2px rgb(0 0 0 / .04);
}
th, td { padding: .625rem 1rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { padding-block: .5rem; font-size: var(--small); font-weight: 600; color: var(--quiet); background: color-mix(in srgb, var(--ground) 60%, var(--sheet)); white-space: nowrap; }
th.number, td.number { text-align: right; }
td.moment, td button { white-space: nowrap; }
tr + tr td, thead + tbody td { border-top: 1px solid var(--hairline); }
td .actions { margin: 0; }
td a:not(.button, :hover, :focus-visible) { text-decoration: none; }
td a + a, td form + form { margin-left: .75rem; }
table + p { margin-top: .75rem; }
.unseen, .again { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
tr:has(.again) td:first-child { border-top-color: transparent; }
.role {
  display: inline-block; padding: 0 .5rem; border: 1px solid; border-radius: 1rem; font-size: var(--small); font-weight: 600;
  white-space: nowrap; color: var(--role); background: var(--role-ground);
}
.role.Owner { --role: #6b21a8; --role-ground: #f3e8ff; }
.role.DbAdmin { --role: #1e40af; --role-ground: #dbeafe; }
.role.ReadWrite { --role: #854d0e; --role-ground: #fef3c7; }
.role.ReadOnly { --role: #166534; --role-ground: #dcfce7; }
.role.None { --role: var(--quiet); --role-ground: var(--sheet); border-style: dashed; }
@media (prefers-color-scheme: dark) {
  .role.Owner { --role: #e2c6ff; --role-ground: #3b1f57; }
  .role.DbAdmin { --role: #bfd3ff; --role-ground: #1e2f5c; }
  .role.ReadWrite { --role: #fde68a; --role-ground: #463208; }
  .role.ReadOnly { --role: #a7f3c0; --role-ground: #123c22; }
}
.dim { color: var(--quiet); }
.gain, .loss, .state { font-weight: 600; }
.gain { color: var(--good); }
.loss, .state.bad { color: var(--error-line); }
.state { white-space: nowrap; }
.state.good { font-weight: 400; }
.state.good::before { content: "\\25CF\\00A0"; color: var(--good); }
.state.bad::before, .wrong::before { content: "\\25B2\\00A0"; }
.tools { display: flex; flex-wrap: wrap; align-items: end; gap: .75rem; margin: 1rem 0; }
.tools .field { flex: 1 1 10rem; max-width: 26rem; margin: 0; }
.tools button { flex: 0 0 auto; }
.console .field label { font-size: var(--small); }
.console input:not([type=radio], [type=checkbox]), .console select { min-height: 2.5rem; padding: .375rem .75rem; }
textarea {
  width: 100%; min-height: 6rem; padding: .5rem .75rem; color: inherit; background: var(--sheet);
  border: 1px solid var(--line); border-radius: .375rem; resize: vertical;
}
.wrong { display: block; font-size: var(--small); font-weight: 500; color: var(--error-line); }
[aria-invalid] { border-color: var(--error-line) !important; }
.boxes { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: 0 1rem; }
.boxes .choice { display: flex; gap: .5rem; align-items: center; margin: 0; padding: .25rem 0; font-weight: 400; }
.boxes .choice input { margin: 0; }
.console form.sheet { padding-top: .75rem; }
.console form.tools.sheet { padding-top: 1.25rem; }
fieldset.field legend { font-size: var(--small); }
.hint { display: block; font-size: var(--small); font-weight: 400; color: var(--quiet); }
.console .actions { margin-top: 1.25rem; gap: .5rem; }
.console .actions button, .console a.button { flex: 0 0 auto; }
.console button:not(.link), a.button { min-height: 2.5rem; padding: .25rem 1rem; }
a.button {
  display: inline-flex; align-items: center; justify-content: center; font-weight: 600; background: var(--sheet);
  border: 1px solid var(--line); border-radius: .375rem; color: var(--ink); text-decoration: none;
}
a.button:hover { border-color: var(--ink); }
a.button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button.danger { border-color: var(--error-line); color: var(--error-line); }
.console button.small { min-height: 2rem; padding: .125rem .75rem; flex: 0 0 auto; font-size: var(--small); }
.group { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: 0 1.5rem; align-items: start; }
.after { margin-top: 1.5rem; }
.sides { display: grid; gap: 0 1.5rem; align-items: start; }
.note.done { border-left-color: var(--good); background: var(--sheet); }
.note summary { width: fit-content; color: var(--accent); }
summary { display: list-item; min-height: 1.75rem; cursor: pointer; font-weight: 600; }
details > :not(summary) { margin-top: .75rem; }
form details { margin-top: 1.25rem; padding-top: 1rem; border-top: 1px solid var(--hairline); }
.tools.sheet .field { flex-basis: 7.5rem; }
.scroll { overflow-x: auto; margin-bottom: .75rem; }
.scroll table { margin: 0; width: auto; }
.scroll th, .scroll td { padding-block: .25rem; }
.scroll .hint { display: inline; }
td details { margin-top: .25rem; }
td summary { width: fit-content; font-size: var(--small); font-weight: 400; color: var(--accent); }
.console td dl { grid-template-columns: auto 1fr; gap: .125rem .75rem; margin: .25rem 0; font-size: var(--small); }
.console td ul { margin: 0; }
ul.plain { list-style: none; padding: 0; }
.choices { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 1rem; }
.choices .sheet { margin: 0; }
.choices h3 { margin-top: 0; }
.console .figures { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 1rem; }
.figures .sheet { display: flex; flex-direction: column-reverse; justify-content: flex-end; margin: 0; padding: .875rem 1.25rem; }
.console .figures dd { margin: 0; font-size: var(--title); font-weight: 600; line-height: 1.2; }
.figures dt { font-size: var(--small); }
.legend { display: flex; flex-wrap: wrap; align-items: center; gap: .25rem .5rem; font-size: var(--small); }
.legend .hint { margin-left: auto; }
.key { display: inline-block; width: .875rem; height: .875rem; border-radius: .1875rem; background: var(--accent); }
.key.p50 { height: .1875rem; }
.key.p95 { height: .1875rem; margin-left: .75rem; background: repeating-linear-gradient(90deg, var(--warn-line) 0 5px, transparent 5px 8px); }
.key.denied { margin-left: .75rem; background: repeating-linear-gradient(45deg, var(--error-line) 0 3px, var(--sheet) 3px 5px); }
.chart { overflow-x: auto; direction: rtl; margin-bottom: 1rem; }
.chart svg { display: block; direction: ltr; width: 100%; min-width: 49.5rem; height: auto; }
.chart path { fill: none; stroke-width: 2; }
.p50 { stroke: var(--accent); fill: var(--accent); }
.p95 { stroke: var(--warn-line); fill: var(--warn-line); }
.p95 path { stroke-dasharray: 6 3; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(52.75rem, 100%), 1fr)); gap: 1rem; }
.charts .sheet { min-width: 0; margin: 0 0 .75rem; }
.switch { display: flex; border: 1px solid var(--line); border-radius: .375rem; overflow: hidden; background: var(--sheet); }
.switch a { padding: .375rem .875rem; color: var(--ink); text-decoration: none; }
.switch a + a { border-left: 1px solid var(--line); }
.switch a:hover { background: var(--ground); }
.switch a:focus-visible { outline-offset: -3px; }
.switch a[aria-current] { background: var(--accent); color: var(--on-accent); }
.choices.tops { grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
.chart text { fill: var(--quiet); font-size: 12px; text-anchor: middle; }
.chart text.scale { text-anchor: start; dominant-baseline: middle; }
.chart .grid line { stroke: var(--hairline); }
.chart pattern rect { fill: var(--error-line); }
.chart pattern line { stroke: var(--sheet); stroke-width: 3; }
.chart .allowed { fill: var(--accent); }
.chart .denied { stroke: var(--error-line); }
.chart .hit { fill: transparent; }
.chart a:hover .hit, .chart a:focus-visible .hit { fill: var(--hairline); }
.chart:focus-visible, .chart a:focus-visible { outline-offset: -2px; }
.choices section > h2 { margin-top: 1.25rem; }
del { color: var(--quiet); }
ins { font-weight: 600; text-decoration: none; }
ins::before { content: "\\2192\\00A0"; color: var(--quiet); }
@media (min-width: 68rem) {
  .sides { grid-template-columns: minmax(0, 40rem) minmax(0, 1fr); }
  .sides > section { position: sticky; top: 1rem; }
}
@media (min-width: 64rem) {
  td:not(.long), td:not(.long) code { overflow-wrap: normal; }
}
@media (max-width: 44rem) {
  .console main { padding: 1.25rem 1rem 3rem; }
  .choices.tops { grid-template-columns: minmax(0, 1fr); }
  .bar { padding: .5rem 1rem 0; gap: 0 .75rem; }
  .bar .brand { flex: 1 1 auto; }
  .bar .who { order: 2; }
  .find { order: 3; flex: 1 0 100%; margin: .25rem 0 .75rem; }
  nav { order: 3; flex: 1 0 100%; gap: 0; margin-left: -.5rem; }
  nav a { min-height: 2.75rem; padding: 0 .3125rem; font-size: var(--small); }
  .console dl { grid-template-columns: 1fr; gap: 0; }
  .console dd { margin-bottom: .625rem; }
  table, tbody, tr, td { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  tr { padding: .5rem 0; }
  tr + tr { border-top: 1px solid var(--hairline); }
  tr td, tr + tr td, thead + tbody td { display: grid; grid-template-columns: 7rem minmax(0, 1fr); gap: .75rem; border: 0; padding: .1875rem 1rem; }
  .state, td.moment { white-space: normal; }
  td.number { text-align: left; }
  tr td:has(> div:empty) { display: none; }
  td::before { content: attr(data-label); color: var(--quiet); font-size: var(--small); }
  .again { position: static; width: auto; height: auto; clip-path: none; white-space: normal; }
}
@media (prefers-reduced-motion: no-preference) {
  button, a.button, nav a { transition: filter .1s, border-color .1s, color .1s; }
}
`;

export const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3.5" fill="#1d4ed8"/><path d="M4 13V7.5a4 4 0 0 1 8 0V13M8 3.5V13M4 9.25h8" fill="none" stroke="#fff" stroke-width="1.5" stroke-linecap="round"/></svg>`;
