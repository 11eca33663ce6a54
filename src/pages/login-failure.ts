import type { Refusal } from "../refusal.ts";

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
