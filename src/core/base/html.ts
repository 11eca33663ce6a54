import { createHmac, timingSafeEqual } from "node:crypto";
import type { Refusal } from "./refusal.ts";

/** HTML that goes into a page unescaped. */
export class Html {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** A part of a page: HTML, a number, text, which is escaped, or nothing. */
export type Part = Html | string | number | false | undefined | readonly Part[];

function toText(part: Part): string {
  if (typeof part === "string") return part.replace(/[&<>"']/g, (sign) => entities[sign] ?? "");
  if (part instanceof Html || typeof part === "number") return String(part);
  return part ? part.map(toText).join("") : "";
}

export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  return new Html(String.raw({ raw: strings }, ...parts.map(toText)));
}

/** Formats a moment to the minute, in UTC. @param seconds since the epoch */
export function formatDate(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

export type FormGuard = ReturnType<typeof createFormGuard>;

/**
 * Binds a form's token to a name that the browser also has in a cookie. A foreign page can neither
 * read the token nor make the browser send it with another cookie.
 */
export function createFormGuard(secret: Uint8Array) {
  const digest = (name: string) =>
    createHmac("sha256", secret).update(`interaction:${name}`).digest();
  return {
    tokenFor: (name: string) => digest(name).toString("base64url"),
    isValid(name: string, token = "") {
      const given = Buffer.from(token, "base64url");
      const expected = digest(name);
      return given.length === expected.length && timingSafeEqual(given, expected);
    },
  };
}

/** Explains a failed login without revealing more than `/login` does. */
export function explainLogin({ code, message, retryAfter = 0 }: Refusal): string {
  if (code === "credentials_invalid") return "The username or the password is wrong.";
  if (code !== "too_many_attempts") return `${message}.`;
  const wait =
    retryAfter > 60
      ? `${Math.ceil(retryAfter / 60)} minutes`
      : `${Math.max(retryAfter, 1)} seconds`;
  return `Too many failed attempts. Try again in ${wait}.`;
}

export function loginError(error: string | undefined): Html {
  return html`${error !== undefined && html`<div class="note error" role="alert" id="error"><p>${error}</p></div>`}`;
}

export function loginFields(username: string, error: string | undefined): Html {
  const described = error !== undefined && html` aria-describedby="error"`;
  const focus = html` autofocus`;
  const isKnown = username !== "";
  return html`<div class="field">
<label for="username">Username</label>
<input id="username" name="username" value="${username}" autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="64"${described}${!isKnown && focus}>
</div>
<div class="field">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required${described}${isKnown && focus}>
</div>`;
}

/** Style of every page. Colors keep a contrast of at least 4.5:1 in both themes. */
export const style = `
:root {
  color-scheme: light dark;
  --ground: #f5f6f8; --sheet: #ffffff; --ink: #171a21; --quiet: #525a6b; --line: #868d9d;
  --accent: #1d4ed8; --on-accent: #ffffff; --hairline: #e1e4ea; --good: #15803d;
  --warn-ground: #fff6dd; --warn-line: #a16207; --error-ground: #fdeeee; --error-line: #b42318;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #101217; --sheet: #191c23; --ink: #e9ebf0; --quiet: #a6adbc; --line: #747d8f;
    --accent: #9db8ff; --on-accent: #0c1530; --hairline: #2d323d; --good: #4ade80;
    --warn-ground: #362b10; --warn-line: #e3b341; --error-ground: #3a1a1a; --error-line: #ff8f85;
  }
}
*, *::before, *::after { box-sizing: border-box; }
body {
  margin: 0; min-height: 100vh; display: flex; flex-direction: column; align-items: center;
  background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
header, main, footer { width: 100%; max-width: 30rem; padding: 0 1.25rem; }
header { padding-top: clamp(1rem, 6vh, 4rem); font-weight: 600; color: var(--quiet); }
main {
  margin: 1rem 0; padding-top: 1.5rem; padding-bottom: 1.5rem; background: var(--sheet);
  border-block: 1px solid var(--hairline);
}
@media (min-width: 31rem) {
  header, footer { padding-inline: 2rem; }
  main { padding: 2rem; border: 1px solid var(--hairline); border-radius: .75rem; }
}
footer { padding-bottom: 2rem; font-size: .875rem; color: var(--quiet); }
h1 { margin: 0 0 .75rem; font-size: 1.5rem; line-height: 1.25; letter-spacing: -.01em; text-wrap: balance; }
h2 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
p { margin: 0 0 .75rem; }
h1, h2, p, dd, li, strong, button { overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.25rem; }
ul + p { margin-top: .75rem; }
li { margin-bottom: .25rem; }
dl { margin: 1rem 0; display: grid; grid-template-columns: auto 1fr; gap: .25rem 1rem; }
dt { color: var(--quiet); }
@media (max-width: 23rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
form + dl { margin-top: 1.5rem; padding-top: 1.5rem; border-top: 1px solid var(--hairline); }
dd { margin: 0; font-weight: 600; }
.quiet { color: var(--quiet); font-size: .9375rem; font-weight: 400; }
.note {
  margin: 1rem 0; padding: .75rem 1rem; border-left: .25rem solid var(--warn-line);
  border-radius: .25rem; background: var(--warn-ground);
}
.note.error { border-left-color: var(--error-line); background: var(--error-ground); }
.note p:last-child, main > p:last-child, form > p:last-child { margin-bottom: 0; }
label, legend { font-weight: 600; }
.field { margin-top: 1rem; }
.field label { display: block; margin-bottom: .25rem; }
input:not([type=radio], [type=checkbox]), select {
  width: 100%; min-height: 2.75rem; padding: .5rem .75rem; font: inherit; color: inherit;
  background: var(--sheet); border: 1px solid var(--line); border-radius: .375rem;
}
.app { margin-top: 1.5rem; padding-top: .25rem; border-top: 1px solid var(--hairline); }
a { color: var(--accent); }
fieldset { margin: 1.25rem 0 0; padding: 0; border: 0; min-width: 0; }
legend { padding: 0; margin-bottom: .25rem; }
.choice { display: flex; gap: .75rem; align-items: flex-start; padding: .5rem 0; font-weight: 400; }
.choice input { flex: none; width: 1.125rem; height: 1.125rem; margin: .25rem 0 0; accent-color: var(--accent); }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin-top: 1.5rem; }
a.button { text-align: center; text-decoration: none; }
button, a.button {
  flex: 1 1 8rem; min-height: 2.75rem; padding: .5rem 1.25rem; font: inherit; font-weight: 600;
  border: 1px solid var(--line); border-radius: .375rem; background: transparent;
  color: var(--ink); cursor: pointer;
}
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button.link {
  flex: none; min-height: 1.5rem; padding: 0; border: 0; color: var(--accent);
  font-weight: 400; text-decoration: underline;
}
button:hover { filter: brightness(1.1); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
`;
