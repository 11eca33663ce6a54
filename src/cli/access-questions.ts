/** `gatehouse access check | who | explain | diff | test`: what users may do, without a query. */

import { readFile } from "node:fs/promises";
import { buffer } from "node:stream/consumers";
import { isDeepStrictEqual } from "node:util";
import type { Command } from "commander";
import * as z from "zod";
import { openGrammar } from "../app/own-engine.ts";
import { diffSnapshots, type EffectChange, effectDiff, limitChange } from "../core/access/diff.ts";
import { answerQuestion } from "../core/access/effective.ts";
import { limitsInWords, viewEntry } from "../core/access/entry-view.ts";
import {
  type EntryPoint,
  groupOf,
  holderName,
  holderText,
  writtenHolder,
} from "../core/access/grant.ts";
import { callerFor } from "../core/access/groups.ts";
import { parseAccess } from "../core/access/parse.ts";
import { type AccessExplanation, grantingEntries, questionSetting } from "../core/access/policy.ts";
import { isExternalGroup } from "../core/access/roles.ts";
import { addedTexts } from "../core/access/row-filter.ts";
import { accountObstacle, type Snapshot } from "../core/access/snapshot.ts";
import { counted, didYouMean } from "../core/base/suggestion.ts";
import { lineLocator, parseToml } from "../core/base/toml.ts";
import type { Configuration } from "../core/config/schema.ts";
import {
  type PredictedOutcome,
  predictionWarnings,
  predictOutcome,
  type QueryCaller,
} from "../core/http/query-outcome.ts";
import { parseUnrounded } from "../core/json/exact.ts";
import { termText } from "../core/query/conditions.ts";
import { batchKey } from "../core/query/grammar.ts";
import { definitions, permissionsOfAll } from "../core/query/operations.ts";
import {
  isPermissionClass,
  type PermissionClass,
  permissionClasses,
} from "../core/query/permissions.ts";
import type { Term } from "../core/query/tree.ts";
import { readAccess } from "./operator.ts";
import {
  type CommonOptions,
  defineCommands,
  loadFor,
  readPlace,
  readTokenGroups,
} from "./options.ts";
import { FAILURE, print, printJson, printList, UsageError, warn } from "./output.ts";

/** @param operation the key of an operation in a query, or the name of a right */
function readPermissions(operation: string, { query }: Configuration): readonly PermissionClass[] {
  const known = new Map<string, readonly PermissionClass[]>();
  for (const [name, own] of Object.entries(definitions)) known.set(name, permissionsOfAll(own));
  for (const [name, right] of Object.entries(query.operations)) known.set(name, [right]);
  const wanted = operation.toLowerCase();
  if (wanted === batchKey.toLowerCase()) {
    throw new UsageError(`a ${batchKey} needs the rights of its elements; check each of them`);
  }
  const key = [...known.keys()].find((name) => name.toLowerCase() === wanted);
  const permissions = known.get(key ?? "");
  if (permissions !== undefined) return permissions;
  const permission = operation.toUpperCase();
  if (isPermissionClass(permission)) return [permission];
  const all = [...known.keys(), ...permissionClasses];
  const problem = `unknown operation ${JSON.stringify(operation)}; allowed: ${all.join(", ")}`;
  throw new UsageError(problem + didYouMean(operation, all));
}

function viewLimits({ grant, approvals }: Pick<AccessExplanation, "grant" | "approvals">): object {
  if (grant === undefined) return {};
  const { database: _, role: __, ...limits } = viewEntry(grant);
  return { ...limits, approvals };
}

/** The approvals that boundaries require, in words. Those of the entry are among its limits. */
function boundaryApprovals({ approvals = [] }: AccessExplanation): string[] {
  return approvals
    .filter(({ boundary }) => boundary !== undefined)
    .map(({ permissions, approvers, boundary }) => {
      const rule = { requireApproval: permissions, ...(approvers && { approvers }) };
      return `${limitsInWords(rule)} (boundary ${boundary})`;
    });
}

interface QuestionOptions extends CommonOptions {
  readonly via: EntryPoint;
  readonly groups?: readonly string[];
}

async function readQuestion(operation: string, where: string, options: QuestionOptions) {
  const loaded = loadFor(options);
  const place = readPlace(where, loaded.configuration);
  const question = { permissions: readPermissions(operation, loaded.configuration), ...place };
  const snapshot = await readAccess(loaded);
  const { via, client } = options;
  const context = { via, client, ...questionSetting(loaded.configuration) };
  return { question, snapshot, context };
}

async function checkAccess(
  username: string,
  operation: string,
  where: string,
  options: QuestionOptions,
): Promise<void> {
  const { question, snapshot, context } = await readQuestion(operation, where, options);
  const { permissions, database, table } = question;
  const { groups = [] } = options;
  const permission = permissions.join(" and ");
  const answer = answerQuestion(snapshot, { username, groups }, question, context);
  const { decided, reason, allowed } = answer;
  const approvals = allowed ? boundaryApprovals(decided) : [];
  const explanation = [answer.explanation, ...approvals].join("; ");
  if (options.json) {
    const { grant: _, approvals: __, ...decision } = decided;
    const limits = allowed ? viewLimits(decided) : {};
    const question = { username, permission, database, table };
    printJson({ ...question, ...decision, allowed, reason, ...limits, explanation });
  } else {
    const outcome = allowed ? "allowed" : "denied";
    print(`${outcome}: ${username} ${permission} on ${where}: ${explanation}`);
  }
  if (!allowed) process.exitCode = FAILURE;
}

async function whoMay(operation: string, where: string, options: QuestionOptions): Promise<void> {
  const { question, snapshot, context } = await readQuestion(operation, where, options);
  const isIn = (username: string) => accountObstacle(snapshot, username) === undefined;
  /** The members for whom the group's entry decides. */
  const membersIn = (group: string | undefined, { entry }: AccessExplanation) =>
    snapshot.groups.get(group ?? "")?.members.filter((username) => {
      const ways = grantingEntries(snapshot, { username }, question, context);
      return isIn(username) && ways.some((way) => way.entry === entry);
    });
  const found = [...snapshot.grants.keys()]
    .filter((holder) => groupOf(holder) !== undefined || isIn(holderText(holder)))
    .flatMap((holder) =>
      [...grantingEntries(snapshot, callerFor(holder), question, context)].map((way) => ({
        holder,
        members: membersIn(groupOf(holder), way),
        ...way,
      })),
    )
    .filter(({ members }) => members?.length !== 0);
  const head = ["USERNAME", "ROLE", "ENTRY", "LIMITS"];
  const toCells = ({ holder, members, ...way }: (typeof found)[number]) => [
    holderText(holder) + (members === undefined ? "" : ` (${members.join(", ")})`),
    String(way.role),
    String(way.entry),
    [way.grant ? limitsInWords(way.grant) : "", ...boundaryApprovals(way)]
      .filter((words) => words !== "")
      .join("; ") || "-",
  ];
  printList(found, options, head, toCells, ({ holder, members, role, entry, ...way }) => ({
    ...writtenHolder(holder),
    members,
    role,
    entry,
    ...viewLimits(way),
  }));
}

/** Reads an access file without checking its permissions, for example one in a repository. */
async function readAccessAt(file: string): Promise<Snapshot> {
  return (await parseAccess(await readFile(file), file)).snapshot;
}

/** Returns a function that judges queries as the gateway does. */
async function openJudge(options: CommonOptions) {
  const loaded = loadFor(options);
  const { file } = options;
  for (const warning of predictionWarnings(loaded.configuration)) warn(warning);
  const snapshot = file === undefined ? await readAccess(loaded) : await readAccessAt(file);
  const context = { queries: openGrammar(loaded), form: loaded.configuration.upstream.query_form };
  return (caller: QueryCaller, body: Buffer) => predictOutcome(snapshot, caller, body, context);
}

function viewOutcome(
  caller: QueryCaller,
  { query, decided, body, ...outcome }: PredictedOutcome,
): object {
  const toView = (terms: readonly Term[]): unknown[] =>
    terms.map((term) => parseUnrounded(termText(term)));
  const decisions = (decided?.decisions ?? []).map(({ filters, ...decision }, at) => {
    const { operation, database, tables } = query?.accesses[at] ?? {};
    const added = filters?.flatMap((filter) => toView(filter.added));
    return {
      operation,
      database,
      tables,
      ...decision,
      filters: filters?.flatMap(({ conditions }) => toView(conditions)),
      added,
    };
  });
  const { limits = [], approvals = [] } = decided ?? {};
  return { ...caller, ...outcome, decisions, limits, approvals, body: body?.toString() };
}

function printOutcome({ user }: QueryCaller, outcome: PredictedOutcome): void {
  const { allowed, code, message, element, reason, query, decided, body } = outcome;
  const where = element === undefined ? "" : ` (element ${element}: ${reason})`;
  const why = message === undefined ? "" : `: ${message}`;
  print(allowed ? `allowed: ${user}` : `denied: ${user}: ${code}${where}${why}`);
  const { decisions = [], limits = [], approvals = [] } = decided ?? {};
  for (const [at, { role, entry, boundary, filters }] of decisions.entries()) {
    const { operation, database, tables = [] } = query?.accesses[at] ?? {};
    const place = tables.length === 0 ? database : `${database}.${tables.join(", ")}`;
    const by = entry === undefined ? "no entry" : `${role} by the entry for ${entry}`;
    const within = boundary === undefined ? "" : `, within the boundary ${boundary}`;
    const additions = addedTexts(filters);
    const added = additions.length === 0 ? "" : `; added: ${additions.join(", ")}`;
    print(`${operation} on ${place}: ${by}${within}${added}`);
  }
  for (const { elements, changes, rows = 0 } of limits) {
    const verb = changes === undefined ? "returned" : "changed";
    const limit = `at most ${counted(changes ?? rows, "row")} ${verb}`;
    print(`limit enforced by the database: ${limit} by element ${elements.join(", ")}`);
  }
  for (const { permissions, approvers, entry, boundary } of approvals) {
    const by = approvers?.join(" or ") ?? "a user who may grant there";
    print(`${permissions.join(", ")} needs approval by ${by} (${entry ?? boundary})`);
  }
  if (body !== undefined) print(`\n${body.toString()}`);
}

async function explainQuery(user: string, options: QuestionOptions): Promise<void> {
  const judge = await openJudge(options);
  const { via, client, groups } = options;
  const caller = { user, via, client, groups };
  const outcome = judge(caller, await buffer(process.stdin));
  if (options.json) printJson(viewOutcome(caller, outcome));
  else printOutcome(caller, outcome);
  if (!outcome.allowed) process.exitCode = FAILURE;
}

const aText = z.string("a text is needed");
const expectationShape = z.strictObject({
  user: aText,
  via: z.enum(["query", "mcp"], '"query" or "mcp" is needed').default("query"),
  client: aText.optional(),
  groups: z
    .array(z.string().refine(isExternalGroup, "a group of an issuer is <prefix>:<group>"))
    .optional(),
  query: aText,
  allowed: z.boolean("true or false is needed"),
  code: aText.optional(),
});
const needed = "at least one is needed";
const expectations = z.strictObject({ expect: z.array(expectationShape, needed).min(1, needed) });
const expectationKeys = Object.keys(expectationShape.shape);

/** @throws Error that names the file and the line */
async function readExpectations(file: string) {
  const text = await readFile(file, "utf8");
  const { data, error } = expectations.safeParse(parseToml(text, file));
  const lineOf = lineLocator(text);
  if (data !== undefined) {
    return data.expect.map((one, at) => ({ ...one, line: lineOf(["expect", at]) ?? 1 }));
  }
  const issue = error.issues.find(({ code }) => code === "unrecognized_keys") ?? error.issues[0];
  const [, at, key] = issue?.path ?? [];
  const unknown = issue?.code === "unrecognized_keys" ? issue.keys[0] : undefined;
  const where = typeof at === "number" ? `${file}:${lineOf(["expect", at])}` : file;
  const reason = unknown === undefined ? issue?.message : "unknown key";
  const name = unknown ?? key;
  const hint = didYouMean(unknown ?? "", expectationKeys);
  throw new Error(
    `${where}: [[expect]]: ${name === undefined ? "" : `\`${String(name)}\`: `}${reason}; allowed keys: ${expectationKeys.join(", ")}${hint}`,
  );
}

function inWords(allowed: boolean, code: string | undefined): string {
  const outcome = allowed ? "allowed" : "denied";
  return code === undefined || code === "allowed" ? outcome : `${outcome} with ${code}`;
}

async function testAccess(file: string, options: CommonOptions): Promise<void> {
  const judge = await openJudge(options);
  const expected = await readExpectations(file);
  const differing = expected.flatMap((expectation) => {
    const { allowed, code } = expectation;
    const outcome = judge(expectation, Buffer.from(expectation.query));
    // For a Batch, the expected code may also be that of the element.
    const isAsExpected =
      allowed === outcome.allowed &&
      (code === undefined || code === outcome.code || code === outcome.reason);
    return isAsExpected ? [] : [{ expectation, outcome }];
  });
  if (options.json) {
    printJson(
      differing.map(({ expectation: { line, ...wanted }, outcome }) => ({
        line,
        expected: wanted,
        found: viewOutcome(wanted, outcome),
      })),
    );
  } else {
    for (const { expectation, outcome } of differing) {
      const { line, user, allowed, code } = expectation;
      const found = inWords(outcome.allowed, outcome.reason ?? outcome.code);
      const why = outcome.message === undefined ? "" : `: ${outcome.message}`;
      print(`${file}:${line}: ${user}: expected ${inWords(allowed, code)}, found ${found}${why}`);
    }
    print(`${counted(expected.length, "expectation")}, ${differing.length} failed`);
  }
  if (differing.length > 0) process.exitCode = FAILURE;
}

function describeEffect(change: EffectChange): string[] {
  const { place, gains, loses, limits, before, after } = change;
  const holder = holderName(change.holder);
  const by = `${before.role} to ${after.role}`;
  const lines: string[] = [];
  if (gains.length > 0) lines.push(`${holder} gains ${gains.join(", ")} on ${place} (${by})`);
  if (loses.length > 0) lines.push(`${holder} loses ${loses.join(", ")} on ${place} (${by})`);
  for (const key of gains.length > 0 ? Object.keys(after.limits) : limits) {
    if (isDeepStrictEqual(before.limits[key], after.limits[key])) continue;
    lines.push(`${holder} on ${place}: ${limitChange(change, key)}`);
  }
  return lines;
}

export function printDifference(before: Snapshot, after: Snapshot, json?: true): void {
  const access = [...effectDiff(before, after, Date.now())];
  const { usersAdded, usersRemoved, usersChanged, ...diff } = diffSnapshots(before, after);
  const { boundariesAdded, boundariesRemoved } = diff;
  const membersIn = ({ groups }: Snapshot, group: string) => new Set(groups.get(group)?.members);
  const groups = new Set([...before.groups.keys(), ...after.groups.keys()]);
  const members = [...groups].flatMap((group) => {
    const [old, current] = [membersIn(before, group), membersIn(after, group)];
    const joined = [...current.difference(old)];
    const left = [...old.difference(current)];
    return joined.length + left.length === 0 ? [] : [{ group, joined, left }];
  });
  const attributesOf = ({ users }: Snapshot, name: string) => users.get(name)?.attributes;
  const attributesChanged = usersChanged.filter(
    (name) => !isDeepStrictEqual(attributesOf(before, name), attributesOf(after, name)),
  );
  const sameAsChanged = [...usersAdded, ...usersRemoved, ...usersChanged].flatMap((user) => {
    const [was, sameAs] = [before, after].map(({ users }) => users.get(user)?.sameAs);
    return was === sameAs ? [] : [{ user, was, same_as: sameAs }];
  });
  if (json) {
    const changes = access.map(({ holder, ...change }) => ({
      ...writtenHolder(holder),
      ...change,
    }));
    const others = { members, attributesChanged, sameAsChanged };
    printJson({ access: changes, ...others, boundariesAdded, boundariesRemoved });
    return;
  }
  const lines = [
    ...access.flatMap(describeEffect),
    ...members.flatMap(({ group, joined, left }) => [
      ...joined.map((name) => `${name} joins the group ${group}`),
      ...left.map((name) => `${name} leaves the group ${group}`),
    ]),
    ...attributesChanged.map((name) => `${name}: attributes changed, which may affect row filters`),
    ...sameAsChanged.map(({ user, was, same_as: sameAs }) =>
      sameAs === undefined
        ? `${user} is no longer the same person as ${was}`
        : `${user} is now the same person as ${sameAs}`,
    ),
    ...boundariesRemoved.map((name) => `boundary removed: ${name}`),
    ...boundariesAdded.map((name) => `boundary added: ${name}`),
  ];
  print(lines.length === 0 ? "no user gains or loses anything" : lines.join("\n"));
}

async function compareAccess(old: string, current: string, { json }: CommonOptions) {
  // One after the other, so that of two broken files the first is always the one reported.
  const before = await readAccessAt(old);
  const after = await readAccessAt(current);
  printDifference(before, after, json);
}

const help = `
check <username> <operation> <place> --via <via> --client <client_id> --json  check whether a user may run an operation, and why
  --groups <groups>  groups that only the user's token knows, such as staff:a,staff:b; may be repeated
who <operation> <place> --via <via> --client <client_id> --json  list users who may run an operation, with entry and limits
explain <username> --file <file> --via <via> --client <client_id> --json  judge the query on standard input, and print it as it would be forwarded
  --groups <groups>  groups that only the user's token knows, such as staff:a,staff:b; may be repeated
diff --json     show who gains and loses what between two access files
  <old>         an access file
  <new>         another access file
test --file <file> --json  test the access file against a file of expectations
  <file>        TOML with [[expect]]: user, groups, via, client, query (JSON), allowed, code
`;

export function questionCommands(): Command[] {
  const runs = {
    check: checkAccess,
    who: whoMay,
    explain: explainQuery,
    diff: compareAccess,
    test: testAccess,
  };
  return defineCommands(help, runs, {
    groups: { add: readTokenGroups },
    via: { choices: ["query", "mcp"], fallback: ["query"] },
  });
}
