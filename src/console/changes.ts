import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import { limitsInWords } from "../access/entry-view.ts";
import { isExternalUsername, type Subject } from "../access/roles.ts";
import { type Grant, grantsOf, type Snapshot } from "../access/snapshot.ts";
import type { Action } from "../administration/actions.ts";
import { changeAs } from "../gateway/administration.ts";
import { identify } from "../identity/authenticate.ts";
import { checkPassword } from "../identity/login.ts";
import type { AuditedChange } from "../observe/audit-line.ts";
import { explainLogin } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { type ConsoleRequest, type Visitor, visitorOf } from "./visit.ts";

/**
 * Formats the place of an entry: `main`, `main.tickets`, `*.customer_*`; several tables separated
 * by commas.
 */
export function placeOf({ database, tables }: Grant): string {
  return tables?.map((table) => `${database}.${table}`).join(", ") ?? database;
}

export function visibleEntries(snapshot: Snapshot, actor: Subject, username: string): Grant[] {
  const { isVisible } = manageableBy(snapshot, actor);
  return [...entriesIn(grantsOf(snapshot, username))].filter(({ database }) => isVisible(database));
}

function mayManage(snapshot: Snapshot, actor: Subject, username: string): boolean {
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const user = snapshot.users.get(username);
  return user === undefined
    ? isExternalUsername(username) && grantsOf(snapshot, username).keys().some(isVisible)
    : isManageable(user);
}

/** @throws Refusal `user_not_found` unless the visitor may manage the user */
export function requireManageable(snapshot: Snapshot, actor: Subject, username: string): void {
  if (!mayManage(snapshot, actor, username)) throw new Refusal("user_not_found");
}

/** True for manageable users and for all external ones, which need no record for a first grant. */
export function mayGrantTo(snapshot: Snapshot, actor: Subject, username: string): boolean {
  return mayManage(snapshot, actor, username) || isExternalUsername(username);
}

/** What the actor sees of a user's record and entries, line by line. */
function seenOf(snapshot: Snapshot, actor: Subject, username: string): string[] {
  const user = snapshot.users.get(username);
  const isKnown = user !== undefined && manageableBy(snapshot, actor).isManageable(user);
  const record = isKnown ? (user.disabled ? "disabled" : "enabled") : "no record";
  const entries = visibleEntries(snapshot, actor, username).map((grant) => {
    const limits = limitsInWords(grant);
    return `${placeOf(grant)}: ${grant.role}${limits === "" ? "" : `; ${limits}`}`;
  });
  return [record, ...entries];
}

/** Thrown if the data behind a form has changed since the form was made. */
class ChangedMeanwhile extends Error {
  readonly gone: readonly string[];
  readonly come: readonly string[];

  constructor(before: readonly string[], now: readonly string[]) {
    super("changed meanwhile");
    this.gone = before.filter((line) => !now.includes(line));
    this.come = now.filter((line) => !before.includes(line));
  }
}

function readLines(text: string | undefined): string[] {
  // Browsers submit CRLF line ends (HTML, section 4.10.21.7).
  return (text ?? "").split(/\r?\n/).filter((line) => line !== "");
}

/** @throws Refusal unless the form has the visitor's password */
export async function requirePassword(c: ConsoleRequest): Promise<void> {
  const { gateway, listener, session, form } = c.var;
  const origin = listener.originOf(c.env.incoming);
  try {
    await checkPassword(gateway.login, session?.username ?? "", form.get("password") ?? "", origin);
  } catch (error) {
    const isWrong = error instanceof Refusal && error.code === "credentials_invalid";
    throw isWrong ? new Refusal(error.code, { message: "That is not your password" }) : error;
  }
}

/**
 * Makes a change for a visitor who has entered the password again, unless the data shown by the
 * form has changed. Everything is judged again on the state read under the lock.
 *
 * @throws ChangedMeanwhile, or Refusal why not
 */
export async function makeChange<Input extends { readonly username: string }>(
  c: ConsoleRequest,
  { plan, endsTokens = false }: Action<Input>,
  input: Input,
): Promise<void> {
  const { gateway, form } = c.var;
  const { actor, session } = visitorOf(c);
  await requirePassword(c);
  const before = readLines(form.get("seen"));
  const judged = (current: Snapshot) => {
    identify(current, gateway.revocations, session);
    const now = seenOf(current, actor, input.username);
    if (before.join("\n") !== now.join("\n")) throw new ChangedMeanwhile(before, now);
    return plan(current, actor, input, gateway.configuration);
  };
  const author = { kind: "console", name: actor.username } as const;
  const endsTokensOf = endsTokens ? input.username : undefined;
  const { written, audited } = await changeAs(gateway, author, judged, endsTokensOf);
  gateway.changes.write(author, audited, written.version);
}

/** Writes a change by the visitor to the audit. */
export function noteChange(c: ConsoleRequest, change: AuditedChange): void {
  const { username: name } = visitorOf(c).actor;
  c.var.gateway.changes.write({ kind: "console", name }, [change]);
}

export function changingForm(
  { snapshot, actor, csrf }: Visitor,
  fields: ReadonlyMap<string, string>,
  failure: Failure | undefined,
) {
  return { fields, csrf, seen: seenOf(snapshot, actor, fields.get("user") ?? ""), failure };
}

const statuses = [400, 401, 403, 404, 409, 429, 503] as const;

export class InvalidFields extends Error {
  /** Error messages by field name. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(fields: ReadonlyMap<string, string>) {
    super("invalid fields");
    this.fields = fields;
  }
}

/** Why a change was not made, for display in its form. */
export interface Failure {
  readonly status: (typeof statuses)[number];
  readonly message: string;
  readonly fields?: ReadonlyMap<string, string>;
  readonly changed?: ChangedMeanwhile;
}

const beyondRights =
  "Your own rights do not reach that far: nobody gives, changes or takes away what is equal to or above their own.";

/** Describes a failure for its form. Rethrows unexpected errors. */
export function failureOf(error: unknown): Failure {
  if (error instanceof ChangedMeanwhile) {
    const message = "Somebody else has changed this meanwhile. Nothing of yours was changed.";
    return { status: 409, message, changed: error };
  }
  if (error instanceof InvalidFields) {
    const { fields } = error;
    const message = `Nothing was changed. Correct ${fields.size === 1 ? "the marked field" : `the ${fields.size} marked fields`}.`;
    return { status: 400, message, fields };
  }
  const status = error instanceof Refusal && statuses.find((known) => known === error.status);
  if (!(error instanceof Refusal) || !status) throw error;
  if (error.code === "role_insufficient" || error.code === "no_grant") {
    return { status, message: beyondRights };
  }
  const isThrottled = error.code === "too_many_attempts" || error.code === "login_busy";
  if (isThrottled) return { status, message: explainLogin(error) };
  const message = `${error.message}.`;
  return error.code === "credentials_invalid"
    ? { status, message, fields: new Map([["password", message]]) }
    : { status, message };
}
