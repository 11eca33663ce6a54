import { createHmac, timingSafeEqual } from "node:crypto";
import type { Refusal } from "../refusal.ts";
import { type Html, html, nothing } from "./html.ts";

/** Makes and checks the token that a form carries. */
export interface FormGuard {
  tokenFor(name: string): string;
  isRight(name: string, token: string | undefined): boolean;
}

/**
 * A form's token is bound to a name that the browser's cookie says too: a page elsewhere can neither
 * read the token nor make the browser send it with another cookie.
 */
export function createFormGuard(secret: Uint8Array): FormGuard {
  const digest = (name: string) =>
    createHmac("sha256", secret).update(`interaction:${name}`).digest();
  return {
    tokenFor: (name) => digest(name).toString("base64url"),
    isRight(name, token = "") {
      const given = Buffer.from(token, "base64url");
      const expected = digest(name);
      return given.length === expected.length && timingSafeEqual(given, expected);
    },
  };
}

/** Why somebody could not log in; says no more than `/login` does. */
export function explainLogin({ code, message, retryAfter = 0 }: Refusal): string {
  if (code === "credentials_invalid") return "The username or the password is wrong.";
  const wait =
    retryAfter > 60
      ? `${Math.ceil(retryAfter / 60)} minutes`
      : `${Math.max(retryAfter, 1)} seconds`;
  if (code === "too_many_attempts") return `Too many failed attempts. Try again in ${wait}.`;
  return `${message}.`;
}

/** Says above the fields of a login why the last try has failed. */
export function loginError(error: string | undefined): Html {
  if (error === undefined) return nothing;
  return html`<div class="note error" role="alert" id="error"><p>${error}</p></div>`;
}

/** The fields of a login, with what was typed as the username the last time. */
export function loginFields(username: string, error: string | undefined): Html {
  const described = error === undefined ? nothing : html` aria-describedby="error"`;
  const focus = html` autofocus`;
  const isKnown = username !== "";
  return html`<div class="field">
<label for="username">Username</label>
<input id="username" name="username" value="${username}" autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="64"${described}${isKnown ? nothing : focus}>
</div>
<div class="field">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required${described}${isKnown ? focus : nothing}>
</div>`;
}
