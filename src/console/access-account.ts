import {
  planAddUser,
  planPatchUser,
  planRemoveUser,
  planSetPassword,
} from "../access/administration.ts";
import { requireAdministrator } from "../access/administration-rights.ts";
import { isDatabaseOrEvery, isEmail, isUsername } from "../access/identifiers.ts";
import { isRole } from "../access/roles.ts";
import { blankUser, type Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
import { hashClientOf } from "../identity/login.ts";
import { hashPassword } from "../identity/password.ts";
import { Refusal, type RefusalCode } from "../refusal.ts";
import {
  type AskedChange,
  changingForm,
  type Failure,
  failureOf,
  InvalidFields,
  makeChange,
  requireManageable,
} from "./changes.ts";
import { type Action, actions, actPage, newUserPage } from "./pages/access-account.ts";
import type { Fields } from "./pages/forms.ts";
import { pathOf } from "./pages/frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

function actionOf(text: string | undefined): Action {
  const action = actions.find((known) => known === text);
  if (action === undefined) throw new Refusal("not_found");
  return action;
}

function showForm(
  c: ConsoleRequest,
  username: string,
  action: Action,
  failure?: Failure,
): Response {
  const visitor = visitorOf(c);
  requireAdministrator(visitor.snapshot, visitor.actor);
  requireManageable(visitor.snapshot, visitor.actor, username);
  const form = changingForm(visitor, new Map([["user", username]]), failure);
  return sendPage(c, visitor, actPage(form, username, action), failure?.status);
}

/** `GET /access/act`: asks once, and for the password, before something happens to an account. */
export function showAct(c: ConsoleRequest): Response {
  const action = actionOf(c.req.query("action"));
  return showForm(c, c.req.query("user") ?? "", action);
}

/** A hash of the password that a form brings. @throws Refusal why it is no good one */
async function newHash(c: ConsoleRequest): Promise<string> {
  const { options, form } = c.var;
  const password = form.get("new_password") ?? "";
  options.passwordRule(password);
  const { hashing, costs } = options.login;
  const client = hashClientOf(options.originOf(c.env.incoming), c.var.session?.username);
  return hashing.run([costs], client, (derive) => hashPassword(password, costs, { derive }));
}

async function changeOf(c: ConsoleRequest, action: Action, username: string): Promise<AskedChange> {
  if (action === "remove") {
    return {
      username,
      plan: (current, actor) => planRemoveUser(current, actor, username),
      endsTokens: true,
    };
  }
  if (action !== "password") {
    const disabled = action === "disable";
    return {
      username,
      plan: (current, actor) =>
        planPatchUser(current, actor, username, { disabled }, c.var.options.issuerPrefixes),
      endsTokens: true,
    };
  }
  const { snapshot, actor } = visitorOf(c);
  // Judged once before the hash, so that nobody without the right buys its work.
  requireAdministrator(snapshot, actor);
  planSetPassword(snapshot, username, "");
  const hash = await newHash(c);
  const plan = (current: Snapshot, subject: Subject) => {
    requireAdministrator(current, subject);
    return planSetPassword(current, username, hash);
  };
  return { username, plan, endsTokens: true };
}

/** `POST /access/act`: does it. */
export async function act(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  const action = actionOf(form.get("action"));
  const username = form.get("user") ?? "";
  try {
    await makeChange(c, await changeOf(c, action, username));
  } catch (error) {
    return showForm(c, username, action, failureOf(error));
  }
  const next = action === "remove" ? "/access" : pathOf("/access/user", { user: username });
  return c.redirect(next, 303);
}

function showNewForm(c: ConsoleRequest, fields: Fields, failure?: Failure): Response {
  const visitor = visitorOf(c);
  if (!visitor.isManager) throw new Refusal("role_insufficient");
  const page = newUserPage(changingForm(visitor, fields, failure));
  return sendPage(c, visitor, page, failure?.status);
}

/** `GET /access/new`: the form for a new user. */
export function showNew(c: ConsoleRequest): Response {
  return showNewForm(c, new Map([["role", "ReadOnly"]]));
}

/** What the form for a new user says. @throws InvalidFields */
function newUserOf({ options, form }: ConsoleRequest["var"]) {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const [username, email, role, database] = [at("user"), at("email"), at("role"), at("database")];
  const wrong = new Map<string, string>();
  const check = (name: string, isGood: boolean, code: RefusalCode) => {
    if (!isGood) wrong.set(name, new Refusal(code).message);
  };
  check("user", isUsername(username), "invalid_username");
  check("email", email === "" || isEmail(email), "invalid_email");
  check("role", isRole(role), "invalid_role");
  check("database", isDatabaseOrEvery(database), "invalid_database");
  try {
    options.passwordRule(form.get("new_password") ?? "");
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    wrong.set("new_password", error.message);
  }
  if (wrong.size > 0 || !isRole(role)) throw new InvalidFields(wrong);
  const record = { ...blankUser(username), email: email === "" ? undefined : email };
  return { record, grant: { database, role } };
}

/** `POST /access/new`: a new user with a first grant. */
export async function addUser(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  try {
    const { record, grant } = newUserOf(c.var);
    const { username } = record;
    const { snapshot, actor } = visitorOf(c);
    // Judged once before the hash, so that nobody without the right buys its work.
    planAddUser(snapshot, actor, record, grant);
    const user = { ...record, passwordHash: await newHash(c) };
    await makeChange(c, {
      username,
      plan: (current, subject) => planAddUser(current, subject, user, grant),
    });
    return c.redirect(pathOf("/access/user", { user: username }), 303);
  } catch (error) {
    return showNewForm(c, form, failureOf(error));
  }
}
