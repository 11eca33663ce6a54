import fc from "fast-check";
import t from "tap";
import {
  planAddUser,
  planGrant,
  planPatchUser,
  planRemoveGroup,
  planRemoveUser,
  planRevoke,
  planSetGroup,
  requireRemainingOwners,
} from "../../src/core/access/administration.ts";
import { groupHolder, userHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { isAdministrator } from "../../src/core/access/policy.ts";
import {
  type Change,
  planReplacement,
  replaceRecords,
} from "../../src/core/access/record-change.ts";
import { entryRoles } from "../../src/core/access/records.ts";
import { blankUser, type Snapshot } from "../../src/core/access/snapshot.ts";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { caseCount } from "../kit/nightly.ts";
import { grant, grantOn, hashWith, user } from "./kit.ts";

const disabled = `password_hash = "${hashWith()}"\ndisabled = true`;

function group(name: string, ...members: string[]): string {
  return `[[groups]]\nname = "${name}"\nmembers = ${JSON.stringify(members)}\n\n`;
}

function entry(name: string, database: string, role: string, more = ""): string {
  return `[[acl]]\ngroup = "${name}"\ndatabase = "${database}"\nrole = "${role}"\n${more}\n`;
}

/** The refusal of a change from one file to another. */
function refusal(before: string, after: string): string | undefined {
  const snapshot = (text: string) => parseAccessFile(text + user("x"), "access.toml");
  try {
    runAtOnce(requireRemainingOwners(snapshot(before), snapshot(after)));
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
  return undefined;
}

const rita = user("rita");
const members = group("admins", "rita");

for (const [database, code] of [
  ["*", "last_administrator"],
  ["main", "last_owner"],
] as const) {
  const given = entry("admins", database, "Owner");
  const own = user("root") + grant("root", database, "Owner");
  const byGroup = rita + members + given;

  t.test(`the last user who owns ${database} by a local group is protected`, async (t) => {
    const afterwards = {
      "without the group": rita,
      "without the entry": rita + members,
      "with a lower entry": rita + members + entry("admins", database, "DbAdmin"),
      "with an entry that expires": `${byGroup.trimEnd()}\nexpires = 2100-01-01T00:00:00Z\n\n`,
      "without the member": rita + group("admins") + given,
      "with an unknown member": rita + group("admins", "ghost") + given,
      "with the member disabled": user("rita", disabled) + members + given,
      "without the user": group("admins", "rita") + given,
      "with an own None": byGroup + grant("rita", database, "None"),
      "with None by another group":
        byGroup + group("none", "rita") + entry("none", database, "None"),
      "with a table taken by another group":
        byGroup + group("none", "rita") + entry("none", database, "None", 'tables = ["t"]\n'),
    };
    for (const [what, after] of Object.entries(afterwards)) {
      t.equal(refusal(byGroup, after), code, what);
    }
    t.equal(refusal(byGroup + entry("staff:admins", database, "Owner"), rita), code, "of tokens");
  });

  t.test(`of two ways by groups to own ${database}, one may go`, async (t) => {
    const second = user("sam") + group("seconds", "sam") + entry("seconds", database, "Owner");
    t.equal(refusal(byGroup + second, second), undefined);
    t.equal(refusal(byGroup + second, byGroup), undefined);
    const both = rita + user("sam") + group("admins", "rita", "sam") + given;
    t.equal(refusal(both, rita + user("sam") + group("admins", "sam") + given), undefined);
  });

  t.test(`while a user owns ${database} by an own entry, only that is protected`, async (t) => {
    t.equal(refusal(own + byGroup, own), undefined, "the group goes");
    t.equal(refusal(own + byGroup, own + rita + group("admins") + given), undefined);
    t.equal(refusal(own + byGroup, own + members + given), undefined, "the member goes");
    t.equal(refusal(own + byGroup, user("root") + byGroup), code, "the own entry stays");
    t.equal(refusal(own + byGroup, byGroup), code, "the user stays");
    t.equal(refusal(byGroup, own), undefined, "an own entry replaces a group");
    const narrowed = group("none", "root") + entry("none", database, "None", 'tables = ["t"]\n');
    t.equal(refusal(own + byGroup, own + byGroup + narrowed), code, "a group narrows it");
  });
}

t.test("an external member of a group is protected if no other user is left", async (t) => {
  const external = group("admins", "staff:ann") + entry("admins", "*", "Owner");
  t.equal(refusal(external, ""), "last_administrator");
  t.equal(
    refusal(external, `${group("admins")}${entry("admins", "*", "Owner")}`),
    "last_administrator",
  );
  const withRita = rita + group("admins", "staff:ann", "rita") + entry("admins", "*", "Owner");
  t.equal(refusal(withRita, external), "last_administrator", "rita has a password");
  t.equal(refusal(withRita, rita + members + entry("admins", "*", "Owner")), undefined);
});

t.test("a group of tokens protects no user, and can always go", async (t) => {
  const tokens = entry("staff:admins", "*", "Owner") + entry("staff:admins", "main", "Owner");
  t.equal(refusal(tokens, ""), undefined);
});

const usernames = ["root", "rita", "sam", "bot", "staff:ann"];
const groupNames = ["admins", "leads"];
const holders = [...usernames.map(userHolder), ...[...groupNames, "staff:ops"].map(groupHolder)];
const databases = ["*", "main"];
const later = Date.UTC(2100, 0);

const one = <Item>(items: readonly Item[]) => fc.constantFrom(...items);
const planned: fc.Arbitrary<(current: Snapshot) => readonly Change[]> = fc.oneof(
  fc
    .record({
      holder: one(holders),
      database: one(databases),
      role: one([...entryRoles, "Owner", "Owner"] as const),
      more: one([
        {},
        {},
        { tables: ["t"] },
        { expires: later },
        { requireApproval: ["DROP" as const] },
      ]),
    })
    .map(
      ({ more, ...given }) =>
        (current: Snapshot) =>
          planGrant(current, "operator", { ...given, ...more }, { replacesLimits: true }),
    ),
  fc
    .record({ holder: one(holders), database: one(databases), table: one([undefined, "t"]) })
    .map((place) => (current: Snapshot) => planRevoke(current, "operator", place)),
  fc.tuple(one(usernames), fc.boolean()).map(
    ([name, disabled]) =>
      (current: Snapshot) =>
        planPatchUser(current, "operator", name, { disabled }, ["staff"]),
  ),
  one(usernames).map((name) => (current: Snapshot) => planRemoveUser(current, "operator", name)),
  fc.tuple(one(usernames), fc.boolean()).map(([username, isMachine]) => (current: Snapshot) => {
    const passwordHash = isMachine ? undefined : hashWith();
    return planAddUser(current, "operator", { ...blankUser(username), passwordHash }, undefined);
  }),
  fc.tuple(one(groupNames), fc.uniqueArray(one(usernames))).map(
    ([name, members]) =>
      (current: Snapshot) =>
        planSetGroup(current, "operator", { name, members }),
  ),
  one([...groupNames, "staff:ops"]).map(
    (name) => (current: Snapshot) => planRemoveGroup(current, "operator", name),
  ),
);

/** The users who can act and administer, written without the guard. */
function administrators(snapshot: Snapshot): string[] {
  return usernames.filter((username) => {
    const user = snapshot.users.get(username);
    const isKnown = user !== undefined || username.startsWith("staff:");
    return isKnown && !user?.disabled && isAdministrator(snapshot, { username });
  });
}

/** Of a user who can log in here: an issuer's user cannot, whatever the record says. */
const hasOwnEntry = (snapshot: Snapshot) =>
  administrators(snapshot).some(
    (username) =>
      !username.startsWith("staff:") &&
      snapshot.users.get(username)?.passwordHash !== undefined &&
      grantOn(snapshot, username, "*")?.role === "Owner",
  );

/** As the store applies a change. Undefined if the plan or the guard refuses it. */
function applied(current: Snapshot, plan: (current: Snapshot) => readonly Change[]) {
  try {
    const replacement = planReplacement(current, plan(current));
    return runAtOnce(replaceRecords(current, replacement, ""));
  } catch (error) {
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

const starts = {
  "an own entry": user("root") + rita + user("sam") + user("bot", "") + grant("root", "*", "Owner"),
  "a group": rita + user("sam") + members + entry("admins", "*", "Owner"),
};

for (const [way, text] of Object.entries(starts)) {
  t.test(`from ${way}, each accepted change leaves a user who can administer`, async (t) => {
    const start = parseAccessFile(text, "access.toml");
    const refused = new Set<string>();
    const walk = fc.property(fc.array(planned, { minLength: 1, maxLength: 40 }), (plans) => {
      let current = start;
      for (const plan of plans) {
        const next = applied(current, plan);
        if (next === undefined) continue;
        try {
          runAtOnce(requireRemainingOwners(current, next));
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          refused.add(error.code);
          // While another administrator with an own entry stays, one may go.
          if (error.code === "last_administrator" && hasOwnEntry(next)) return false;
          continue;
        }
        if (administrators(next).length === 0) return false;
        if (hasOwnEntry(current) && !hasOwnEntry(next)) return false;
        current = next;
      }
      return true;
    });
    fc.assert(walk, { numRuns: caseCount(1000, 20_000) });
    t.strictSame([...refused].sort(), ["last_administrator", "last_owner"]);
  });
}
