import { EVERY_DATABASE } from "../../../access/roles.ts";
import type { Consent } from "../consent.ts";
import { type Html, html } from "./html.ts";

/** A moment to the minute. @param seconds since the epoch */
export function dateOf(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** What a user has let an app do. */
export function permission({ database, readOnly }: Pick<Consent, "database" | "readOnly">): Html {
  const what = readOnly ? "only read" : "read and change";
  if (database === EVERY_DATABASE) return html`${what} all databases that you may use`;
  return html`${what} <strong>${database}</strong>`;
}

/** The tools that an app has called. */
export function calls(called: Iterable<string>): Html {
  const names = [...called];
  if (names.length === 0) return html`It has called no tool.`;
  return html`It has called ${names.join(", ")}.`;
}
