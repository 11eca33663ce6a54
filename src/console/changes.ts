import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import { limitsInWords } from "../access/entry-view.ts";
import { isExternalUsername } from "../access/identifiers.ts";
import type { Change } from "../access/record-change.ts";
import { type Grant, grantsOf, type Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
import { identify } from "../identity/authenticate.ts";
import { checkPassword } from "../identity/login.ts";
import { explainLogin } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { type ConsoleRequest, type Visitor, visitorOf } from "./visit.ts";

/** Where an entry is: `main`, `main.tickets`, `*.customer_*`; several tables with commas. */
export function placeOf({ database, tables }: Grant): string {
  return tables?.map((table) => `${database}.${table}`).join(", ") ?? database;
}

/** The entries of a user that somebody may see, in the file's order. */
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

/** True for manageable users, and for all external ones: they need no record for a first grant. */
export function mayGrantTo(snapshot: Snapshot, actor: Subject, username: string): boolean {
  return mayManage(snapshot, actor, username) || isExternalUsername(username);
}

/** What somebody sees of a user's record and entries, line by line. */
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

/** Thrown where somebody else has changed what a form was made from. */
class ChangedMeanwhile extends Error {
  /** What was there when the form was made, and is not any more. */
  readonly gone: readonly string[];
  /** What is there now, and was not then. */
  readonly come: readonly string[];

  constructor(before: readonly string[], now: readonly string[]) {
    super("changed meanwhile");
    this.gone = before.filter((line) => !now.includes(line));
    this.come = now.filter((line) => !before.includes(line));
  }
}

/** Lines as a form carries them. */
function readLines(text: string | undefined): string[] {
  // Browsers end each line as text on the wire ends (HTML, section 4.10.21.7).
  return (text ?? "").split(/\r?\n/).filter((line) => line !== "");
}

/** @throws Refusal unless the form has the password of whoever is signed in */
export async function requirePassword(c: ConsoleRequest): Promise<void> {
  const { options, session, form } = c.var;
  const origin = options.originOf(c.env.incoming);
  try {
    await checkPassword(options.login, session?.username ?? "", form.get("password") ?? "", origin);
  } catch (error) {
    const isWrong = error instanceof Refusal && error.code === "credentials_invalid";
    throw isWrong ? new Refusal(error.code, { message: "That is not your password" }) : error;
  }
}

/** A change that a form asks for. */
export interface AskedChange {
  readonly username: string;
  readonly plan: (current: Snapshot, actor: Subject) => readonly Change[];
  /** True if the user's tokens end with it. */
  readonly endsTokens?: boolean;
}

/**
 * Makes a change for whoever is signed in and has given the password again, as long as nobody else
 * has changed what the form shows. All of it is judged anew on what is read under the lock.
 *
 * @throws ChangedMeanwhile, or Refusal why not
 */
export async function makeChange(
  c: ConsoleRequest,
  { username, plan, endsTokens = false }: AskedChange,
): Promise<void> {
  const { options, form } = c.var;
  const { actor, session } = visitorOf(c);
  await requirePassword(c);
  const before = readLines(form.get("seen"));
  const judged = (current: Snapshot) => {
    identify(current, options.revocations, session);
    const now = seenOf(current, actor, username);
    if (before.join("\n") !== now.join("\n")) throw new ChangedMeanwhile(before, now);
    return plan(current, actor);
  };
  await options.change(actor.username, judged, endsTokens ? username : undefined);
}

/** What a form that changes something of a user is made from. @param fields what was filled in */
export function changingForm(
  { snapshot, actor, csrf }: Visitor,
  fields: ReadonlyMap<string, string>,
  failure: Failure | undefined,
) {
  return { fields, csrf, seen: seenOf(snapshot, actor, fields.get("user") ?? ""), failure };
}

const statuses = [400, 401, 403, 404, 409, 429, 503] as const;

/** Thrown for a form with fields that hold what they may not hold. */
export class InvalidFields extends Error {
  /** What is wrong, by the names of the fields. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(fields: ReadonlyMap<string, string>) {
    super("invalid fields");
    this.fields = fields;
  }
}

/** Why a change was not made, for the form that asked for it. */
export interface Failure {
  readonly status: (typeof statuses)[number];
  readonly message: string;
  readonly fields?: ReadonlyMap<string, string>;
  readonly changed?: ChangedMeanwhile;
}

const beyondRights =
  "Your own rights do not reach that far: nobody gives, changes or takes away what is equal to or above their own.";

/** @returns what to show; whatever is no refusal is thrown on */
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
