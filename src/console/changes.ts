import type { Hono } from "hono";
import { manageableBy } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import { limitsInWords } from "../access/entry-view.ts";
import { isExternalUsername } from "../access/roles.ts";
import { type Grant, grantsOf, type Snapshot } from "../access/snapshot.ts";
import type { Action } from "../administration/actions.ts";
import { changeAs } from "../gateway/administration.ts";
import { identify } from "../identity/authenticate.ts";
import { checkPassword } from "../identity/login.ts";
import type { AuditedChange } from "../observe/audit-line.ts";
import { explainLogin, type Html, html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import {
  type Fields,
  type Filled,
  failureNote,
  gatherBoxes,
  hidden,
  linkButton,
  ownPassword,
  userLink,
} from "./frame.ts";
import {
  type ConsoleEnv,
  type ConsoleRequest,
  sendPage,
  type Visitor,
  visitorOf,
} from "./visit.ts";

/** Such as `main`, `main.tickets`, or `*.customer_*, *.orders`. */
export function placeOf({ database, tables }: Grant): string {
  return tables?.map((table) => `${database}.${table}`).join(", ") ?? database;
}

type View = Pick<Visitor, "snapshot" | "actor">;

export function visibleEntries({ snapshot, actor }: View, username: string): Grant[] {
  const { isVisible } = manageableBy(snapshot, actor);
  return [...entriesIn(grantsOf(snapshot, username))].filter(({ database }) => isVisible(database));
}

function mayManage({ snapshot, actor }: View, username: string): boolean {
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const user = snapshot.users.get(username);
  return user === undefined
    ? isExternalUsername(username) && grantsOf(snapshot, username).keys().some(isVisible)
    : isManageable(user);
}

/** @throws Refusal `user_not_found` unless the visitor may manage the user */
export function requireManageable(view: View, username: string): void {
  if (!mayManage(view, username)) throw new Refusal("user_not_found");
}

/** True for manageable users and for all external ones, which need no record for a first grant. */
export function mayGrantTo(view: View, username: string): boolean {
  return mayManage(view, username) || isExternalUsername(username);
}

function seenOf(view: View, username: string): string[] {
  const user = view.snapshot.users.get(username);
  const isKnown = user && manageableBy(view.snapshot, view.actor).isManageable(user);
  const record = isKnown ? (user.disabled ? "disabled" : "enabled") : "no record";
  const entries = visibleEntries(view, username).map((grant) => {
    const limits = limitsInWords(grant);
    return `${placeOf(grant)}: ${grant.role}${limits && `; ${limits}`}`;
  });
  return [record, ...entries];
}

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
 */
export async function makeChange<Input extends { readonly username: string }>(
  c: ConsoleRequest,
  { plan }: Action<Input>,
  input: Input,
): Promise<void> {
  const { gateway, form } = c.var;
  const { actor, session } = visitorOf(c);
  await requirePassword(c);
  // Browsers submit CRLF line ends (HTML, section 4.10.21.7).
  const before = (form.get("seen") ?? "").split(/\r?\n/).filter((line) => line !== "");
  const judged = (current: Snapshot) => {
    identify(current, gateway.revocations, session);
    const now = seenOf({ snapshot: current, actor }, input.username);
    if (before.join("\n") !== now.join("\n")) {
      const message = "Somebody else has changed this meanwhile. Nothing of yours was changed.";
      const gone = before.filter((line) => !now.includes(line));
      const come = now.filter((line) => !before.includes(line));
      throw new Failure(409, message, { changed: { gone, come } });
    }
    return plan(current, actor, input, gateway.configuration);
  };
  const author = { kind: "console", name: actor.username } as const;
  const { written, audited } = await changeAs(gateway, author, judged);
  gateway.changes.write(author, audited, written.version);
}

export function noteChange(c: ConsoleRequest, change: AuditedChange): void {
  const { username } = visitorOf(c).actor;
  c.var.gateway.changes.write({ kind: "console", name: username }, [change]);
}

interface ChangingPage {
  readonly title: string;
  readonly heading: Html;
  /** Undefined for a new user. */
  readonly username?: string;
  readonly sentence?: string;
  readonly action: string;
  readonly listsSeen?: boolean;
  readonly form: Html;
  readonly button: Html;
}

/** Sends a form that asks for the reader's own password and is submitted once. */
export function sendForm(c: ConsoleRequest, filled: Filled, page: ChangingPage): Response {
  const visitor = visitorOf(c);
  const { title, heading, username, sentence, action, listsSeen, form, button } = page;
  const seen = seenOf(visitor, username ?? filled.fields.get("user") ?? "");
  const content = html`<p class="path"><a href="/access">Access</a>${username !== undefined && html` / ${userLink(username)}`}</p>
<h1>${heading}</h1>
${failureNote(filled.failure)}
${sentence && html`<p>${sentence}</p>`}
<form method="post" action="${action}" class="sheet narrow">
${hidden("csrf", visitor.csrf)}${hidden("seen", seen.join("\n"))}${username !== undefined && hidden("user", username)}
${listsSeen && html`<p><bdi>${username}</bdi> has now:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>`}
${form}
${ownPassword(filled)}
<div class="actions">${button} ${username === undefined ? linkButton("Cancel", "/access") : linkButton("Cancel", "/access/user", { user: username })}</div>
</form>`;
  return sendPage(c, { title, place: "Access", failure: filled.failure, content });
}

export interface ConsoleForm {
  readonly start: (c: ConsoleRequest) => Fields;
  /** @throws Refusal if the visitor may not use the form */
  readonly require: (c: ConsoleRequest, fields: Fields) => void;
  readonly send: (c: ConsoleRequest, filled: Filled) => Response | Promise<Response>;
  /** @returns the answer, or the path of the page to go to @throws Failure or Refusal */
  readonly submit: (c: ConsoleRequest, fields: Fields) => Promise<Response | string>;
}

export function addForm(app: Hono<ConsoleEnv>, path: string, form: ConsoleForm): void {
  const { start, require, send, submit } = form;
  app.get(path, (c) => {
    const fields = start(c);
    require(c, fields);
    return send(c, { fields });
  });
  app.post(path, async (c) => {
    const fields = gatherBoxes(c.var.form);
    require(c, fields);
    try {
      const answer = await submit(c, fields);
      return typeof answer === "string" ? c.redirect(answer, 303) : answer;
    } catch (error) {
      return send(c, { fields, failure: failureOf(error) });
    }
  });
}

const statuses = [400, 401, 403, 404, 409, 429, 503] as const;

interface FailureDetails {
  readonly fields?: Fields;
  /** What has changed since the form was made, line by line. */
  readonly changed?: { readonly gone: readonly string[]; readonly come: readonly string[] };
}

export class Failure extends Error {
  readonly status: (typeof statuses)[number];
  readonly details: FailureDetails;

  constructor(status: Failure["status"], message: string, details: FailureDetails = {}) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

export function invalidFields(fields: Fields): Failure {
  const marked = fields.size === 1 ? "the marked field" : `the ${fields.size} marked fields`;
  return new Failure(400, `Nothing was changed. Correct ${marked}.`, { fields });
}

const beyondRights =
  "Your own rights do not reach that far: nobody gives, changes or takes away what is equal to or above their own.";

/** Describes a failure for its form. Rethrows unexpected errors. */
export function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const status = error instanceof Refusal && statuses.find((known) => known === error.status);
  if (!(error instanceof Refusal) || !status) throw error;
  const { code } = error;
  if (code === "role_insufficient" || code === "no_grant") return new Failure(status, beyondRights);
  const isThrottled = code === "too_many_attempts" || code === "login_busy";
  const message = isThrottled ? explainLogin(error) : `${error.message}.`;
  const isWrong = code === "credentials_invalid";
  return new Failure(status, message, isWrong ? { fields: new Map([["password", message]]) } : {});
}
