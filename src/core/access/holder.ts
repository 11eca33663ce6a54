declare const holderBrand: unique symbol;

/**
 * Who holds an entry: a user or a group. The compiler does not take one for a username. At run time
 * it is the user's name or `group:<name>`, as in approvers and stored records, so that equal holders
 * are equal keys.
 */
export interface Holder {
  readonly [holderBrand]: true;
}

/** No username has this prefix, and no issuer. */
export const GROUP_PREFIX = "group:";

/** Reads a username or `group:<name>`. */
export function readHolder(text: unknown): Holder {
  return text as Holder;
}

/** A username, or `group:<name>`. */
export function holderText(holder: Holder): string {
  return String(holder);
}

export function userHolder(username: string): Holder {
  return readHolder(username);
}

export function groupHolder(group: string): Holder {
  return readHolder(GROUP_PREFIX + group);
}

/** The group's name. Undefined for a user. */
export function groupOf(holder: Holder): string | undefined {
  const text = holderText(holder);
  return text.startsWith(GROUP_PREFIX) ? text.slice(GROUP_PREFIX.length) : undefined;
}

/** The username. Undefined for a group. */
export function userOf(holder: Holder): string | undefined {
  return groupOf(holder) === undefined ? holderText(holder) : undefined;
}

/** `rita`, or `group analysts`. */
export function holderName(holder: Holder): string {
  const group = groupOf(holder);
  return group === undefined ? holderText(holder) : `group ${group}`;
}

/** As the file and JSON write it: under `username`, or under `group`. */
export function writtenHolder(holder: Holder): { username: string } | { group: string } {
  const group = groupOf(holder);
  return group === undefined ? { username: holderText(holder) } : { group };
}

/** As messages name an entry: its place, and the group if it is a group's. */
export function displayName(place: string, { holder }: { readonly holder: Holder }): string {
  const group = groupOf(holder);
  return group === undefined ? place : `${place} (group ${group})`;
}
