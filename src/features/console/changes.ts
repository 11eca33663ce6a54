import { hash } from "node:crypto";
import type { Hono } from "hono";
import type { Plan } from "../../core/access/access-rules.ts";
import { manageableBy, mayManage, type View } from "../../core/access/administration.ts";
import { entriesIn } from "../../core/access/entries.ts";
import { limitsInWords } from "../../core/access/entry-view.ts";
import {
  describePlace,
  type Grant,
  groupHolder,
  groupOf,
  type Holder,
  holderName,
  holderText,
  readHolder,
  userHolder,
  userOf,
} from "../../core/access/grant.ts";
import { listLocalGroups } from "../../core/access/groups.ts";
import { holdersIn } from "../../core/access/record-change.ts";
import { isExternalGroup, isExternalUsername } from "../../core/access/roles.ts";
import { firstNames, ownGrants, type Snapshot } from "../../core/access/snapshot.ts";
import type { Action } from "../../core/administration/actions.ts";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { explainLogin, type Html, html } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { counted } from "../../core/base/suggestion.ts";
import { changeAs } from "../../core/http/administration.ts";
import { identify } from "../../core/identity/authenticate.ts";
import { checkPassword } from "../../core/identity/login.ts";
import type { AuditedChange } from "../../core/observe/audit-line.ts";
import { isRecent } from "../oauth/client/sign-ins.ts";
import {
  Failure,
  type Fields,
  type FormState,
  hidden,
  linkButton,
  ownPassword,
  pathOf,
  postForm,
  statuses,
  userLink,
  userPath,
} from "./frame.ts";
import { type ConsoleEnv, type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

export function visibleEntries({ snapshot, actor }: View, holder: Holder): Grant[] {
  const { isVisible } = manageableBy(snapshot, actor);
  return [...entriesIn(ownGrants(snapshot, holder))].filter(({ database }) => isVisible(database));
}

/** The visible entries of a user's local groups. */
export function visibleGroupEntries(view: View, holder: Holder): Grant[] {
  const groups = listLocalGroups(view.snapshot, userOf(holder) ?? "").map(groupHolder);
  return groups.flatMap((group) => visibleEntries(view, group));
}

/** True for manageable users and groups, and for issuers' names, which need no record for a grant. */
export function mayGrantTo(view: View, holder: Holder): boolean {
  const isOfIssuer = isExternalUsername(userOf(holder)) || isExternalGroup(groupOf(holder));
  return isOfIssuer || mayManage(view, holder);
}

/** With external users who are only in local groups. */
export function everyHolder(snapshot: Snapshot): Set<Holder> {
  const members = snapshot.groups.values().flatMap((group) => group.members.map(userHolder));
  return holdersIn(snapshot).union(new Set(members));
}

/** Users or groups per page. */
const PAGE = 50;

/** The users and groups that the visitor may manage, from the one after which the query asks. */
export async function holderPage(
  { snapshot, actor }: View,
  after: string | undefined,
  holders: Iterable<Holder>,
  isMeant: (holder: Holder) => boolean,
) {
  const { isManageable } = manageableBy(snapshot, actor);
  const begin = after === undefined ? undefined : readHolder(after);
  // One more than a page holds shows whether there is another page.
  const found = await runCooperatively(
    firstNames(holders, PAGE + 1, begin, (one) => isManageable(one) && isMeant(one)),
  );
  const shown = found.slice(0, PAGE);
  return { shown, next: found.length > PAGE ? shown.at(-1) : undefined };
}

/** @throws Refusal `user_not_found` or `group_not_found` unless it `isAllowed` */
export function requireManageable(view: View, holder: Holder, isAllowed = mayManage): void {
  if (isAllowed(view, holder)) return;
  throw new Refusal(groupOf(holder) === undefined ? "user_not_found" : "group_not_found");
}

/** Members that a form holds by name. It holds a digest of the others, since forms are limited. */
const LISTED_MEMBERS = 100;

function recordState({ users, groups }: Snapshot, holder: Holder): string[] {
  const members = groups.get(groupOf(holder) ?? "")?.members;
  if (members?.length === 0) return ["no members"];
  if (members !== undefined) {
    const listed = members.slice(0, LISTED_MEMBERS).map((member) => `member ${member}`);
    const others = members.slice(LISTED_MEMBERS);
    if (others.length === 0) return listed;
    const digest = hash("sha256", others.join("\n")).slice(0, 12);
    return [...listed, `${counted(others.length, "more member")} (${digest})`];
  }
  const user = users.get(userOf(holder) ?? "");
  if (user === undefined) return ["no record"];
  return [user.disabled ? "disabled" : "enabled"];
}

/**
 * The visible state of a user or group, line by line. A form holds it, so that changes to it are
 * noticed.
 */
export function stateOf(view: View, holder: Holder): string[] {
  const record = mayManage(view, holder) ? recordState(view.snapshot, holder) : ["no record"];
  const entries = visibleEntries(view, holder).map((grant) => {
    const limits = limitsInWords(grant);
    return `${describePlace(grant)}: ${grant.role}${limits && `; ${limits}`}`;
  });
  return [...record, ...entries];
}

export const RECENT_SECONDS = 300;
/** Fields of a form that its page takes from the query. */
const placeFields = ["user", "action", "database", "table"];

function pathOfForm({ req, var: { form } }: ConsoleRequest): string {
  if (req.method === "GET") return pathOf(req.path, req.query());
  return pathOf(req.path, Object.fromEntries(placeFields.map((name) => [name, form.get(name)])));
}

/** The part of a form that confirms it. Nothing after a recent sign-in through a provider. */
export function confirmationField(c: ConsoleRequest, state?: FormState): Html | undefined {
  const { session, signIns } = c.var;
  if (session?.signIn === undefined) return ownPassword(state);
  if (isRecent(session.signIn, RECENT_SECONDS)) return undefined;
  const prefix = session.username.split(":")[0];
  const provider = signIns?.providers.find((one) => one.prefix === prefix);
  const given = { again: "yes", next: pathOfForm(c) };
  return html`<div class="field"><p>Changes need a sign-in within the last 5 minutes. Sign in again before you fill in the form.</p>
${provider && linkButton(`Sign in again: ${provider.label}`, `/sign-in/${prefix}`, given)}</div>`;
}

/** @throws Refusal `credentials_invalid`, or as `checkPassword` */
export async function requireConfirmation(c: ConsoleRequest): Promise<void> {
  const { gateway, listener, session, form } = c.var;
  if (session?.signIn !== undefined) {
    if (isRecent(session.signIn, RECENT_SECONDS)) return;
    const message = "Nothing was changed: sign in again, and submit the form within 5 minutes";
    throw new Refusal("credentials_invalid", { message });
  }
  const origin = listener.originOf(c.env.incoming);
  try {
    await checkPassword(gateway.login, session?.username ?? "", form.get("password") ?? "", origin);
  } catch (error) {
    const isWrong = error instanceof Refusal && error.code === "credentials_invalid";
    throw isWrong ? new Refusal(error.code, { message: "Incorrect password" }) : error;
  }
}

/** Makes a change as the visitor, who is judged again on the state read under the lock. */
export async function changeAsVisitor(c: ConsoleRequest, plan: Plan): Promise<Snapshot> {
  const { gateway } = c.var;
  const { actor, session } = visitorOf(c);
  const author = { kind: "console", name: actor.username } as const;
  const { written, audited } = await changeAs(gateway, author, (current) => {
    identify(current, gateway.revocations, session);
    return plan(current);
  });
  gateway.changes.write(author, audited, written.version);
  return written;
}

export interface Changed {
  readonly before: Snapshot;
  readonly after: Snapshot;
}

/**
 * Makes a change that the visitor has confirmed.
 *
 * @throws Failure 409 if the user or group has changed since the form was loaded
 */
export async function makeChange<Input>(
  c: ConsoleRequest,
  holder: Holder,
  { plan }: Action<Input>,
  input: Input,
): Promise<Changed> {
  const { gateway, form } = c.var;
  const { actor } = visitorOf(c);
  await requireConfirmation(c);
  // Browsers submit CRLF line ends (HTML, section 4.10.21.7).
  const seen = (form.get("seen") ?? "").split(/\r?\n/).filter((line) => line !== "");
  let before = gateway.access.snapshot;
  const after = await changeAsVisitor(c, (current) => {
    before = current;
    const now = stateOf({ snapshot: current, actor }, holder);
    if (seen.join("\n") !== now.join("\n")) {
      const kind = groupOf(holder) === undefined ? "user" : "group";
      const message = `Someone else has changed this ${kind}. Your change was not saved.`;
      const removed = seen.filter((line) => !now.includes(line));
      const added = now.filter((line) => !seen.includes(line));
      throw new Failure(409, message, { changed: { removed, added } });
    }
    return plan(current, actor, input, gateway.configuration);
  });
  return { before, after };
}

export function noteChange(c: ConsoleRequest, change: AuditedChange): void {
  const { username } = visitorOf(c).actor;
  c.var.gateway.changes.write({ kind: "console", name: username }, [change]);
}

export function holderIn(fields: Fields): Holder {
  return readHolder(fields.get("user") ?? "");
}

interface FormPage {
  readonly title: string;
  readonly heading?: Html;
  /** Undefined for a new user or group. */
  readonly holder?: Holder | undefined;
  readonly sentence?: string;
  readonly action: string;
  readonly listsState?: boolean;
  readonly form: Html;
  readonly button: Html;
  /** The effect of the form in words, beside it on a wide screen. */
  readonly preview?: Html;
}

export function sendForm(c: ConsoleRequest, state: FormState, page: FormPage): Response {
  const visitor = visitorOf(c);
  const { title, heading, holder, sentence, action, listsState, form, button, preview } = page;
  const seen = stateOf(visitor, holder ?? holderIn(state.fields));
  // A form that comes back keeps the state in which it was loaded.
  const isReloaded = state.failure?.details.changed !== undefined;
  const isKept = c.req.method === "POST" && !isReloaded;
  const loaded = isKept ? c.var.form.get("seen") : undefined;
  const back = holder === undefined ? "/access" : userPath(holder);
  const access = html`<a href="/access">Access</a>`;
  const sheet = postForm(
    visitor.csrf,
    action,
    "sheet narrow",
    html`${hidden("seen", loaded ?? seen.join("\n"))}${holder !== undefined && hidden("user", holderText(holder))}
${listsState && html`<p>Current access of <bdi>${holder && holderName(holder)}</bdi>:</p><ul>${seen.map((line) => html`<li>${line}</li>`)}</ul>`}
${form}
${confirmationField(c, state)}
<div class="actions">${button} ${linkButton("Cancel", back)}</div>`,
  );
  const content = html`${sentence && html`<p>${sentence}</p>`}
${preview ? html`<div class="sides">${sheet}<section class="sheet" id="preview" tabindex="-1"><h2>Preview</h2>${preview}</section></div>` : sheet}`;
  return sendPage(c, {
    title,
    section: "Access",
    heading,
    failure: state.failure,
    content,
    path: holder === undefined ? access : html`${access} / ${userLink(holder)}`,
  });
}

export interface ConsoleForm {
  readonly start: (c: ConsoleRequest) => Fields;
  /** @throws Refusal if the visitor may not use the form */
  readonly require: (c: ConsoleRequest, fields: Fields) => void;
  readonly send: (c: ConsoleRequest, state: FormState) => Response | Promise<Response>;
  /** @returns the response, or the path to redirect to @throws Failure or Refusal */
  readonly submit: (c: ConsoleRequest, fields: Fields) => Promise<Response | string>;
}

export function addForm(
  app: Hono<ConsoleEnv>,
  path: string,
  { start, require, send, submit }: ConsoleForm,
): void {
  app.get(path, (c) => {
    const fields = start(c);
    require(c, fields);
    return send(c, { fields });
  });
  app.post(path, async (c) => {
    const fields = c.var.form;
    require(c, fields);
    try {
      const answer = await submit(c, fields);
      return typeof answer === "string" ? c.redirect(answer, 303) : answer;
    } catch (error) {
      return send(c, { fields, failure: failureOf(c, error) });
    }
  });
}

export function invalidFields(fields: Fields): Failure {
  const marked = fields.size === 1 ? "the marked field" : `the ${fields.size} marked fields`;
  return new Failure(400, `Nothing was changed. Correct ${marked}.`, { fields });
}

const beyondRights =
  "Your own rights are too low: you may not grant, change or revoke rights equal to or above your own.";

/** Logs the reason of a failure that is the gateway's. */
export function logRefusal(c: ConsoleRequest, { status, code, detail }: Refusal): void {
  if (status === 503) c.var.gateway.log.warn({ path: c.req.path, code, detail }, "refused");
}

/** Describes a failure for its form. Rethrows unexpected errors. */
export function failureOf(c: ConsoleRequest, error: unknown): Failure {
  if (error instanceof Failure) return error;
  const status = error instanceof Refusal && statuses.find((known) => known === error.status);
  if (!(error instanceof Refusal) || !status) throw error;
  const { code } = error;
  logRefusal(c, error);
  if (code === "role_insufficient" || code === "no_grant") return new Failure(status, beyondRights);
  const isThrottled = code === "too_many_attempts" || code === "login_busy";
  const message = isThrottled ? explainLogin(error) : `${error.message}.`;
  const isWrong = code === "credentials_invalid";
  return new Failure(status, message, isWrong ? { fields: new Map([["password", message]]) } : {});
}
