import { requireAdministrator } from "../access/administration.ts";
import { roles } from "../access/roles.ts";
import {
  type AccountAction,
  type AccountActionName,
  accountActions,
  actions,
  bodies,
} from "../administration/actions.ts";
import { hashClientOf } from "../identity/login.ts";
import { hashPassword } from "../identity/password.ts";
import { html, nothing } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import {
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

function actPage(view: ChangingForm, username: string, name: AccountActionName): ConsolePage {
  const { form, needsPassword }: AccountAction = accountActions[name];
  const { title, sentence, button, isDangerous } = form;
  return changingPage(view, {
    ...{ username, sentence, title: `${title} ${username}`, action: "/access/act" },
    heading: html`${title} <bdi>${username}</bdi>`,
    form: html`${hidden("user", username)}${hidden("action", name)}
${seenList(username, view.seen)}
${needsPassword ? newPassword(view, "New password") : nothing}`,
    button: html`<button class="${isDangerous ? "danger" : "primary"}">${button}</button>`,
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

function isAction(text: string): text is AccountActionName {
  return Object.hasOwn(accountActions, text);
}

function actionOf(text = ""): AccountActionName {
  if (!isAction(text)) throw new Refusal("not_found");
  return text;
}

function showForm(
  c: ConsoleRequest,
  username: string,
  action: AccountActionName,
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

export async function act(c: ConsoleRequest): Promise<Response> {
  const { form, gateway } = c.var;
  const action = actionOf(form.get("action"));
  const { plan, endsTokens, needsPassword }: AccountAction = accountActions[action];
  const username = form.get("user") ?? "";
  // Users change their own password elsewhere, with the old one.
  const judged: typeof plan = (current, actor, ...given) => {
    requireAdministrator(current, actor);
    return plan(current, actor, ...given);
  };
  try {
    const { snapshot, actor } = visitorOf(c);
    if (needsPassword) judged(snapshot, actor, { username }, gateway.configuration);
    const input = { username, ...(needsPassword ? { passwordHash: await newHash(c) } : {}) };
    await makeChange(c, { plan: judged, endsTokens }, input);
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

/** @throws InvalidFields */
function newUserOf({ gateway, form }: ConsoleRequest["var"]) {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const password = form.get("new_password") ?? "";
  const { data, error } = bodies.addUser.safeParse({
    ...{ username: at("user"), email: at("email") || undefined, password },
    ...{ role: at("role"), database: at("database") },
  });
  const wrong = new Map(
    error?.issues.map(({ path: [name], message }) => [
      name === "username" ? "user" : String(name),
      message,
    ]),
  );
  try {
    gateway.passwordRule(password);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    wrong.set("new_password", error.message);
  }
  if (wrong.size > 0 || data === undefined) throw new InvalidFields(wrong);
  const { username, email, role, database = "" } = data;
  return { username, email: email ?? undefined, grant: { database, role } };
}

export async function addUser(c: ConsoleRequest): Promise<Response> {
  const { form, gateway } = c.var;
  try {
    const user = newUserOf(c.var);
    const { snapshot, actor } = visitorOf(c);
    actions.addUser.plan(snapshot, actor, user, gateway.configuration);
    await makeChange(c, actions.addUser, { ...user, passwordHash: await newHash(c) });
    return c.redirect(pathOf("/access/user", { user: user.username }), 303);
  } catch (error) {
    return showNewForm(c, form, failureOf(error));
  }
}
