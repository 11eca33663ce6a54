import { limitsInWords, writtenTime } from "../../access/entry-view.ts";
import type { EntryRole } from "../../access/roles.ts";
import type { Grant, User } from "../../access/snapshot.ts";
import { type Html, html, nothing } from "../../pages/html.ts";

/** Entries as every page shows them. */

/** A path with parameters; those that are undefined are left out. */
export function pathOf(
  path: string,
  parameters: Readonly<Record<string, string | undefined>>,
): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, value);
  return `${path}?${query}`;
}

/** A role, which looks the same wherever it stands. */
export function roleBadge(role: EntryRole): Html {
  return html`<span class="role ${role}">${role}</span>`;
}

/** What an entry says besides its role and its end, in words. */
export function narrowing({ expires: _, ...grant }: Grant): Html {
  const words = limitsInWords(grant);
  return words === "" ? html`<span class="dim">not narrowed</span>` : html`${words}`;
}

/** How long an entry holds. @param now epoch milliseconds */
export function until({ expires }: Grant, now: number): Html {
  if (expires === undefined) return html`<span class="dim">no end</span>`;
  const time = writtenTime(expires).replace("T", " ").replace("Z", " UTC");
  return expires > now ? html`${time}` : html`<span class="state bad">ended ${time}</span>`;
}

/** What there is to know of an account at a glance. */
export function accountMark(user: User | undefined): Html {
  if (user === undefined) return html`<span class="hint">known to an external server</span>`;
  if (user.disabled) return html`<span class="state bad">disabled</span>`;
  return user.passwordHash === undefined ? html`<span class="hint">no password</span>` : nothing;
}
