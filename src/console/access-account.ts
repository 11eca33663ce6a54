import {
  planAddUser,
  planPatchUser,
  planRemoveUser,
  planSetPassword,
  requireAdministrator,
} from "../access/administration.ts";
import {
  isDatabaseOrEvery,
  isEmail,
  isRole,
  isUsername,
  roles,
  type Subject,
} from "../access/roles.ts";
import { blankUser, type Snapshot } from "../access/snapshot.ts";
import { issuerPrefixes } from "../config/schema.ts";
import { hashClientOf } from "../identity/login.ts";
import { hashPassword } from "../identity/password.ts";
import { html, nothing } from "../pages/html.ts";
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
import {
  type ChangingForm,
  type ConsolePage,
  changingPage,
  choice,
  type Fields,
  field,
  hidden,
  newPassword,
  pathOf,
  seenList,
} from "./frame.ts";
import { type ConsoleRequest, sendPage, visitorOf } from "./visit.ts";

const actions = ["password", "disable", "enable", "remove"] as const;
type Action = (typeof actions)[number];

const words: Readonly<Record<Action, readonly [title: string, sentence: string, button: string]>> =
  {
    password: [
      "Set a new password for",
      "Every token, app and session of the old password ends at once.",
      "Set this password",
    ],
    disable: [
      "Disable",
      "Every token, app and session ends for good. Nobody logs in as this user until it is enabled again. Grants stay.",
      "Disable",
    ],
    enable: [
      "Enable",
      "The user may log in again. Tokens, apps and sessions from before stay ended.",
      "Enable",
    ],
    remove: [
      "Remove",
      "The record goes, and all its grants, for good. Every token ends.",
      "Remove for good",
    ],
  };

function actPage(view: ChangingForm, username: string, action: Action): ConsolePage {
  const [title, sentence, button] = words[action];
  const isSafe = action === "enable" || action === "password";
  return changingPage(view, {
    ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
    heading: html`${title} <bdi>${username}</bdi>`,
    form: html`${hidden("user", username)}${hidden("action", action)}
${seenList(username, view.seen)}
${action === "password" ? newPassword(view, "New password") : nothing}`,
    button: html`<button class="${isSafe ? "primary" : "danger"}">${button}</button>`,
  });
}

function newUserPage(view: ChangingForm): ConsolePage {
  return changingPage(view, {
    ...{ title: "Add a user", heading: html`Add a user`, action: "/access/new" },
    form: html`<div class="group">
${field(view, { name: "user", label: "Username", hint: "1 to 64 of letters, digits, . _ - @", isRequired: true })}
${field(view, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(view, { name: "database", label: "Database", hint: "A name, or * for every database", isRequired: true })}
${choice(view, { name: "role", label: "Role" }, roles)}
</div>
${newPassword(view, "First password")}`,
    button: html`<button class="primary">Add this user</button>`,
  });
}

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

export function showAct(c: ConsoleRequest): Response {
  const action = actionOf(c.req.query("action"));
  return showForm(c, c.req.query("user") ?? "", action);
}

/** Hashes the password from a form. @throws Refusal if the password is unacceptable */
async function newHash(c: ConsoleRequest): Promise<string> {
  const { gateway, listener, form } = c.var;
  const password = form.get("new_password") ?? "";
  gateway.passwordRule(password);
  const { hashing, costs } = gateway.login;
  const client = hashClientOf(listener.originOf(c.env.incoming), c.var.session?.username);
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
        planPatchUser(
          current,
          actor,
          username,
          { disabled },
          issuerPrefixes(c.var.gateway.configuration),
        ),
      endsTokens: true,
    };
  }
  const { snapshot, actor } = visitorOf(c);
  // Checked before hashing, so that a visitor without the right cannot cause that work.
  requireAdministrator(snapshot, actor);
  planSetPassword(snapshot, username, "");
  const hash = await newHash(c);
  const plan = (current: Snapshot, subject: Subject) => {
    requireAdministrator(current, subject);
    return planSetPassword(current, username, hash);
  };
  return { username, plan, endsTokens: true };
}

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

export function showNew(c: ConsoleRequest): Response {
  return showNewForm(c, new Map([["role", "ReadOnly"]]));
}

function newUserOf({ gateway, form }: ConsoleRequest["var"]) {
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
    gateway.passwordRule(form.get("new_password") ?? "");
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    wrong.set("new_password", error.message);
  }
  if (wrong.size > 0 || !isRole(role)) throw new InvalidFields(wrong);
  const record = { ...blankUser(username), email: email === "" ? undefined : email };
  return { record, grant: { database, role } };
}

export async function addUser(c: ConsoleRequest): Promise<Response> {
  const { form } = c.var;
  try {
    const { record, grant } = newUserOf(c.var);
    const { username } = record;
    const { snapshot, actor } = visitorOf(c);
    // Checked before hashing, so that a visitor without the right cannot cause that work.
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
