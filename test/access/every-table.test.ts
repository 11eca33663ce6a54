import t from "tap";
import { type Boundary, type Grant, readHolder } from "../../src/core/access/grant.ts";
import { decideEveryTable, decideWholeDatabase } from "../../src/core/access/policy.ts";
import { roleAllows } from "../../src/core/access/roles.ts";
import type { PermissionClass } from "../../src/core/query/permissions.ts";
import { now, snapshotOf, username } from "./decision-worlds.ts";

const subject = { username, tokenDatabase: "*" };
const origin = { via: "query" } as const;

function worldOf(grants: readonly Partial<Grant>[], boundaries: readonly Boundary[] = []) {
  const place = { holder: readHolder(username), database: "main", role: "ReadWrite" } as const;
  const written = grants.map((grant) => ({ ...place, ...grant }));
  return snapshotOf({ grants: written, boundaries, attributes: {} });
}

function reasonFor(
  grants: readonly Partial<Grant>[],
  prefix: string,
  permission: PermissionClass = "SELECT",
  boundaries?: readonly Boundary[],
): string {
  const snapshot = worldOf(grants, boundaries);
  return decideEveryTable(snapshot, subject, permission, "main", prefix, origin).reason;
}

t.test("a name for several tables needs an entry that covers them all", async (t) => {
  t.equal(reasonFor([{}], ""), "allowed");
  t.equal(reasonFor([{ database: "*" }], "logs-"), "allowed");
  t.equal(reasonFor([{ tables: ["logs-*"] }], "logs-"), "allowed");
  t.equal(reasonFor([{ tables: ["logs-*"] }], "logs-2026"), "allowed");
  t.equal(reasonFor([{ tables: ["*"] }], ""), "allowed");
  t.equal(reasonFor([{ tables: ["logs-2026*"] }], "logs-"), "name_too_wide");
  t.equal(reasonFor([{ tables: ["logs-*"] }], ""), "name_too_wide");
  t.equal(reasonFor([{ tables: ["logs-a", "logs-b"] }], "logs-"), "name_too_wide");
  const closed = { role: "None" } as const;
  t.equal(reasonFor([closed, { tables: ["logs-*"] }], ""), "name_too_wide");
  t.equal(reasonFor([closed, { tables: ["logs-*"] }], "metrics-"), "role_insufficient");
  t.equal(reasonFor([{ role: "ReadOnly" }, { tables: ["a"] }], "", "DELETE"), "name_too_wide");
  t.equal(reasonFor([{ database: "other" }], ""), "no_grant");
  t.equal(reasonFor([], ""), "no_grant");
});

t.test("an entry inside that allows less makes a name too wide", async (t) => {
  const none = { role: "None", tables: ["logs-secret"] } as const;
  const reader = { role: "ReadOnly", tables: ["logs-old*"] } as const;
  t.equal(reasonFor([{}, none], ""), "name_too_wide");
  t.equal(reasonFor([{}, none], "logs-"), "name_too_wide");
  t.equal(reasonFor([{}, none], "metrics-"), "allowed");
  t.equal(reasonFor([{}, reader], "logs-"), "allowed");
  t.equal(reasonFor([{}, reader], "logs-", "DELETE"), "name_too_wide");
  t.equal(reasonFor([{}, reader], "logs-old-2", "DELETE"), "role_insufficient");
  t.equal(reasonFor([{ database: "*" }, none], ""), "name_too_wide");
  t.equal(reasonFor([{ database: "*" }, { ...none, database: "*" }], ""), "name_too_wide");
  const misspelled = { role: "None", tables: ["Logs-Secret"] } as const;
  t.equal(reasonFor([{}, misspelled], "logs-"), "name_too_wide");
  t.equal(reasonFor([{}, misspelled], "logs-s"), "name_too_wide");
  t.equal(reasonFor([{}, { ...misspelled, tables: ["LOGS-S*"] }], "logs-"), "name_too_wide");
  t.equal(reasonFor([{}, misspelled], "logs-x"), "allowed");
  const expired = { tables: ["logs-x"], expires: now - 1 };
  t.equal(reasonFor([{}, expired], ""), "name_too_wide");
});

t.test("an entry for every database that a nearer one overrides does not count", async (t) => {
  const none = { database: "*", role: "None", tables: ["logs-secret"] } as const;
  t.equal(reasonFor([{ tables: ["logs-*"] }, none], "logs-"), "allowed");
  t.equal(reasonFor([{ database: "*" }, none], "logs-"), "name_too_wide");
});

t.test("limits of a covering entry or a boundary cannot be kept", async (t) => {
  t.equal(reasonFor([{ maxRows: 5 }], ""), "not_narrowable");
  t.equal(reasonFor([{ requireApproval: ["DELETE"] }], "", "DELETE"), "not_narrowable");
  t.equal(reasonFor([{ requireApproval: ["DELETE"] }], "", "SELECT"), "allowed");
  t.equal(reasonFor([{}, { tables: ["logs-x"], maxRows: 5 }], "logs-"), "name_too_wide");
  t.equal(reasonFor([{}], "", "SELECT", [{ via: "query", maxRows: 5 }]), "not_narrowable");
  const bound = [{ via: "query", role: "ReadOnly" }] as const;
  t.equal(reasonFor([{}], "", "DELETE", bound), "role_insufficient");
  t.equal(reasonFor([{}, { tables: ["a"] }], "", "DELETE", bound), "role_insufficient");
});

t.test("a caller who may use a wide name may use every name that it includes", async (t) => {
  const roles = ["None", "ReadOnly", "ReadWrite", "DbAdmin"] as const;
  const places = [["a*"], ["ab"], ["ab*"], ["abc"], ["b"], undefined];
  const names = ["a", "ab", "abc", "abd", "b", "c"];
  let seed = 7;
  const pick = <One>(list: readonly One[]): One | undefined => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return list[seed % list.length];
  };
  let wide = 0;
  for (let round = 0; round < 20_000; round++) {
    const grants: Partial<Grant>[] = [];
    for (const database of ["main", "*"]) {
      for (const tables of places) {
        const role = pick([...roles, undefined, undefined]);
        // Two patterns of one user must not match the same name.
        const isDouble = tables?.[0] === "ab*" || role === undefined;
        if (isDouble) continue;
        grants.push({ database, role, ...(tables === undefined ? {} : { tables }) });
      }
    }
    const permission = pick(["SELECT", "DELETE", "CREATE"] as const) ?? "SELECT";
    const prefix = pick(["", "a", "ab"]) ?? "";
    const snapshot = worldOf(grants);
    const { allowed } = decideEveryTable(snapshot, subject, permission, "main", prefix, origin);
    if (!allowed) continue;
    wide++;
    for (const name of names.filter((one) => one.startsWith(prefix))) {
      const one = decideWholeDatabase(snapshot, subject, permission, "main", origin, name);
      if (!one.allowed || !roleAllows(one.role ?? "None", permission)) {
        t.fail(`${permission} on ${prefix}* but not ${name}: ${JSON.stringify(grants)}`);
      }
    }
  }
  t.ok(wide > 1000, `${wide} wide names were allowed`);
});
