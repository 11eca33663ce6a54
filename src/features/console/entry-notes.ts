/** What else decides where an entry applies: boundaries, groups, other entries, the account. */

import { entriesIn, isSamePlace, patternPrefix } from "../../core/access/entries.ts";
import { commonLimitsInWords, namesInWords, timeInWords } from "../../core/access/entry-view.ts";
import {
  type Boundary,
  describePlace,
  type Grant,
  groupOf,
  type Holder,
  holderName,
  holderText,
  userHolder,
  userOf,
} from "../../core/access/grant.ts";
import { allEntries, callerFor, isMeant, mayHaveTokenGroups } from "../../core/access/groups.ts";
import { writeRateLimit } from "../../core/access/records.ts";
import { boundaryName, decidingEntry } from "../../core/access/rights.ts";
import { EVERY_DATABASE } from "../../core/access/roles.ts";
import { ownGrants, type Snapshot } from "../../core/access/snapshot.ts";
import { counted } from "../../core/base/suggestion.ts";
import { placeName } from "../../core/query/names.ts";

/** The reader of a note, who may not see every entry. */
export interface Reader {
  readonly isVisible: (database: string) => boolean;
  readonly isManageable: (holder: Holder) => boolean;
}

function boundaryInWords(grant: Grant, given: Boundary, { isManageable }: Reader): string {
  const { holder: bound, approvers, ...open } = given;
  const isNamed = bound === undefined || bound === grant.holder || isManageable(bound);
  const boundary: Boundary = {
    ...open,
    ...(bound !== undefined && isNamed && { holder: bound }),
    ...(approvers?.every(isManageable) && { approvers }),
  };
  const { via, client, holder, database, role, rateLimit } = boundary;
  const where = database !== undefined && grant.database !== database && placeName(database);
  const whom = holder !== undefined && holder !== grant.holder && holderName(holder);
  const way = `${via === "mcp" ? "Over MCP" : "Over /query"}${client === undefined ? "" : ` with the client ${client}`}`;
  const limits = [
    role && `at most ${role}`,
    ...commonLimitsInWords(boundary),
    rateLimit && `at most ${writeRateLimit(rateLimit)} queries`,
  ].filter((words) => typeof words === "string");
  const about = [where && ` on ${where}`, whom && ` for ${whom}`].filter(Boolean).join("");
  return `${way}${about}: ${limits.join(", ")} (boundary ${boundaryName(boundary)}).`;
}

/** True if an entry decides on a part of what another one covers. */
function isWithin(part: Grant, whole: Grant): boolean {
  if (part.database !== whole.database) return whole.database === EVERY_DATABASE;
  const { tables: names = [] } = part;
  if (whole.tables === undefined) return names.length > 0;
  const prefixes = whole.tables.flatMap((name) => patternPrefix(name) ?? []);
  return names.some((name) => prefixes.some((one) => name.startsWith(one) && name !== `${one}*`));
}

function hasSamePlace({ database, tables = [] }: Grant, other: Grant): boolean {
  return database === other.database && tables.join() === (other.tables ?? []).join();
}

/** Users whom no entry of their groups lets in, since several of them differ. */
export function conflictInWords(names: readonly string[], groups: readonly string[]): string {
  const has = names.length === 1 ? "has" : "have";
  return `${namesInWords(names)} ${has} no access there: the entries of the groups ${namesInWords(groups)} differ.`;
}

function memberNotes(snapshot: Snapshot, grant: Grant, now: number): string[] {
  const group = groupOf(grant.holder);
  if (group === undefined) return [];
  const members = snapshot.groups.get(group)?.members;
  if (members === undefined) return [`Members are the users whose tokens name ${group}.`];
  if (members.length === 0) return ["The group has no members yet."];
  const others = members.flatMap((username) => {
    const found = decidingEntry(snapshot, { username }, grant.database, grant.tables?.[0], now);
    return found === undefined || found.grant === grant
      ? []
      : [{ username, conflict: found.conflict }];
  });
  const byConflict = Map.groupBy(others, ({ conflict }) => conflict?.join());
  const names = namesInWords(members);
  return [
    `The group has ${counted(members.length, "member")}: ${names}.`,
    ...Array.from(byConflict.values(), (some) => {
      const usernames = some.map(({ username }) => username);
      const conflict = some[0]?.conflict;
      return conflict === undefined
        ? `For ${namesInWords(usernames)}, another entry decides there.`
        : conflictInWords(usernames, conflict);
    }),
  ];
}

function expiryNote(snapshot: Snapshot, grant: Grant, now: number): string | undefined {
  const { holder, database, tables, expires } = grant;
  if (expires === undefined) {
    const same = entriesIn(ownGrants(snapshot, holder)).filter((one) => hasSamePlace(one, grant));
    const other = [...same].find((one) => !isSamePlace(one, grant));
    const until = other?.expires ?? 0;
    return until > now && other
      ? `Until ${timeInWords(until)}, the temporary entry decides there: ${other.role}.`
      : undefined;
  }
  const next = decidingEntry(snapshot, callerFor(holder), database, tables?.[0], expires);
  if (next?.conflict !== undefined) {
    return `After that, ${conflictInWords([holderName(holder)], next.conflict)}`;
  }
  if (next?.isExpired === false) {
    const which = next.grant.holder === holder ? "other entry" : `entry for ${next.name}`;
    return `After that, the ${which} decides: ${next.grant.role}.`;
  }
  const isGroup = groupOf(holder) !== undefined;
  const isByToken = !isGroup && mayHaveTokenGroups(snapshot, holderText(holder));
  const who = isGroup ? " to members without another entry" : "";
  const unless = isByToken ? ", unless a group of the token has an entry" : "";
  return `After that, it denies everything there${who} until it is removed or replaced${unless}.`;
}

/**
 * Sentences about an entry of the snapshot, for those who may see its database.
 *
 * @param reader only whose manageable users and groups are named with boundaries
 */
export function notesOnEntry(
  snapshot: Snapshot,
  grant: Grant,
  now: number,
  reader: Reader,
): string[] {
  const { holder, database } = grant;
  const caller = callerFor(holder);
  const username = userOf(holder);
  const group = groupOf(holder);
  const members = new Set<Holder>(
    snapshot.groups.get(group ?? "")?.members.map((one) => userHolder(one)),
  );
  const entries = [...allEntries(snapshot, caller)].filter((one) => reader.isVisible(one.database));
  const within = entries.filter((one) => isWithin(one, grant)).map(describePlace);
  const groups = entries
    .filter((one) => one.holder !== holder && hasSamePlace(one, grant))
    .map((one) => holderName(one.holder));
  const boundaries = snapshot.boundaries.filter(
    (one) =>
      (one.holder === undefined ||
        isMeant(snapshot, caller, one.holder) ||
        members.has(one.holder)) &&
      (database === EVERY_DATABASE ||
        (one.database ?? database).toLowerCase() === database.toLowerCase()),
  );
  const isDisabled = snapshot.users.get(username ?? "")?.disabled === true;
  return [
    isDisabled && `${holderText(holder)} is disabled, and has no access until enabled.`,
    ...memberNotes(snapshot, grant, now),
    groups.length > 0 && `This entry counts instead of the one of ${namesInWords(groups)}.`,
    within.length > 0 && `Other entries decide on ${namesInWords([...new Set(within)])}.`,
    ...(grant.role === "None"
      ? []
      : boundaries.map((boundary) => boundaryInWords(grant, boundary, reader))),
    expiryNote(snapshot, grant, now),
  ].filter((note) => typeof note === "string");
}
