import { isDeepStrictEqual } from "node:util";
import {
  manageableBy,
  mayManage,
  maySeeDecision,
  requireAdministrator,
  visibleBoundary,
} from "../../core/access/administration.ts";
import { type DecidingEntry, entriesAt, isSamePlace } from "../../core/access/entries.ts";
import {
  type EntryPlace,
  entryInWords,
  readCondition,
  viewEntry,
  writeCondition,
} from "../../core/access/entry-view.ts";
import {
  describePlace,
  displayName,
  type Grant,
  groupHolder,
  groupOf,
  type Holder,
  holderName,
  holderText,
  readHolder,
  userHolder,
  writtenHolder,
} from "../../core/access/grant.ts";
import { callerFor, listLocalGroups, mayHaveTokenGroups } from "../../core/access/groups.ts";
import { lintEntry } from "../../core/access/lint.ts";
import { questionSetting } from "../../core/access/policy.ts";
import {
  type Change,
  holdersIn,
  planReplacement,
  replaceRecords,
} from "../../core/access/record-change.ts";
import { entryRoles, type Report, readGrant } from "../../core/access/records.ts";
import { decidingEntry } from "../../core/access/rights.ts";
import {
  type EntryRole,
  EVERY_DATABASE,
  isAnyUsername,
  isDatabaseOrEvery,
  isExternalGroup,
  isExternalUsername,
  isLocalGroupName,
  isRole,
  joinNames,
  roles,
} from "../../core/access/roles.ts";
import { addedTexts } from "../../core/access/row-filter.ts";
import {
  endOfEarlierTokens,
  namesOfPerson,
  ownGrants,
  type Snapshot,
} from "../../core/access/snapshot.ts";
import {
  type AccountAction,
  accountActions,
  actions,
  bodies,
  unlockedUser,
} from "../../core/administration/actions.ts";
import { writtenTime } from "../../core/base/clock.ts";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { counted } from "../../core/base/suggestion.ts";
import {
  type PredictedOutcome,
  predictionWarnings,
  predictOutcome,
} from "../../core/http/query-outcome.ts";
import { hashNewPassword } from "../../core/identity/login.ts";
import { placeName, splitPlace } from "../../core/query/names.ts";
import {
  type Changed,
  type ConsoleForm,
  holderIn,
  holderPage,
  invalidFields,
  makeChange,
  mayGrantTo,
  noteChange,
  requireConfirmation,
  requireManageable,
  sendForm,
  visibleEntries,
  visibleGroupEntries,
} from "./changes.ts";
import { conflictInWords, notesOnEntry } from "./entry-notes.ts";
import {
  boxes,
  checkbox,
  dim,
  empty,
  expiry,
  Failure,
  type Fields,
  type FormState,
  field,
  groupRows,
  hidden,
  hint,
  holderMark,
  limitsOf,
  linkButton,
  mark,
  momentIn,
  parseList,
  pathOf,
  plainWords,
  postForm,
  required,
  roleBadge,
  table,
  unseen,
  userLink,
  userPath,
  type Visitor,
} from "./frame.ts";
import { notify, type Undo } from "./notice.ts";
import { accountFacts, recentDenials, testSection } from "./person.ts";
import { effectiveSection } from "./table-access.ts";
import { tokenSection } from "./tokens.ts";
import { type ConsoleRequest, managerOf, sendPage, visitorOf } from "./visit.ts";

/** Entries per user in the list; the user's own page shows all. */
const SHOWN = 6;

export async function showAccess(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, actor, isAdministrator } = visitor;
  const { isVisible } = manageableBy(snapshot, actor);
  const at = (name: string) => (c.req.query(name) ?? "").trim();
  const [user, place] = [at("user"), at("place")];
  const { database, table: ofTable } = splitPlace(place);
  const after = c.req.query("after");
  const now = Date.now();
  const isGroups = c.req.path === "/access/groups";
  const noun = isGroups ? "group" : "user";

  function entriesOf(holder: Holder): readonly Pick<DecidingEntry, "grant" | "name">[] {
    if (ofTable !== undefined) {
      const found = decidingEntry(snapshot, callerFor(holder), database, ofTable, now);
      return found !== undefined && isVisible(found.grant.database) ? [found] : [];
    }
    return [...visibleEntries(visitor, holder), ...visibleGroupEntries(visitor, holder)]
      .filter((one) => database === "" || [database, EVERY_DATABASE].includes(one.database))
      .map((grant) => ({ grant, name: displayName(describePlace(grant), grant) }));
  }
  const fits = (holder: Holder) =>
    (groupOf(holder) !== undefined) === isGroups &&
    holderText(holder).toLowerCase().includes(user.toLowerCase()) &&
    (database === "" || entriesOf(holder).length > 0);
  const { shown, next } = await holderPage(visitor, after, holdersIn(snapshot), fits);

  function rowsOf(holder: Holder): Part[][] {
    const entries = entriesOf(holder);
    const name = html`${userLink(holder)} ${holderMark(snapshot, holder)}`;
    const rows = entries
      .slice(0, SHOWN)
      .map(({ grant, name }) => [
        html`<code>${isGroups ? describePlace(grant) : name}</code>`,
        roleBadge(grant.role),
        limitsOf(grant),
        expiry(grant, now),
      ]);
    const more = entries.length - SHOWN;
    if (rows.length === 0) {
      const isByToken = mayHaveTokenGroups(snapshot, holderText(holder));
      rows.push([dim(isByToken ? "by groups of the token" : "no grants")]);
    }
    if (more > 0) {
      const text = html`and ${more} more${unseen(" entries of ", holderText(holder))}`;
      rows.push([html`<a href="${userPath(holder)}">${text}</a>`]);
    }
    return groupRows(name, html`<bdi>${holderName(holder)}</bdi>`, rows);
  }
  const { path } = c.req;
  const asked = holderText(isGroups ? groupHolder(user) : userHolder(user));
  const none = [
    after === undefined ? `No matching ${noun}s that you may manage.` : `No more ${noun}s.`,
    isGroups && isAdministrator && " Add one to give several users the same access.",
    (isGroups ? isExternalGroup(user) : isExternalUsername(user)) &&
      html` <a href="${pathOf("/access/entry", { user: asked })}">Grant access to <bdi>${user}</bdi></a>.`,
    (user !== "" || place !== "") && html` <a href="${path}">Show all ${noun}s</a>.`,
  ];
  const label = isGroups ? "Group" : "User";
  const columns = [label, "Where", "Role", "Limits", ["Expires", "moment"]] as const;
  const state = { fields: new Map(Object.entries({ user, place })) };
  const pages = [
    after !== undefined && linkButton("First page", path, { user, place }),
    next && linkButton(`More ${noun}s`, path, { user, place, after: holderText(next) }),
  ];
  const rule =
    ofTable !== undefined
      ? html`Each row is the entry that currently applies to <code>${place}</code>.`
      : html`The most specific entry applies to a table: its name, then a pattern, then its database, then <code>*</code>.`;
  return sendPage(c, {
    title: isGroups ? "Groups" : "Access",
    section: "Access",
    ...(isGroups && { path: html`<a href="/access">Access</a>` }),
    actions: isGroups
      ? isAdministrator && linkButton("Add a group", "/access/members", {}, " primary")
      : [
          linkButton("Groups", "/access/groups"),
          linkButton("Tables", "/access/table", { place }),
          linkButton("Test a query", "/access/check"),
          linkButton("Add a user", "/access/new", {}, " primary"),
        ],
    content: html`<form method="get" action="${path}" class="tools" role="search">
${field(state, { name: "user", label: `${label} contains`, more: html` maxlength="264"` })}
${field(state, { name: "place", label: "Database or table", more: html` maxlength="127" placeholder="main, or main.tickets"` })}
<button>Show</button>
</form>
${table(`${label}s and grants`, columns, shown.flatMap(rowsOf), none)}
${pages.some(Boolean) && html`<p class="actions">${pages}</p>`}
<p class="quiet">${rule} Access version <code>${snapshot.version}</code>.</p>`,
  });
}

const rights: Readonly<Record<EntryRole, string>> = {
  Owner: "all operations and grants",
  DbAdmin: "rows, tables, and grants up to ReadWrite",
  ReadWrite: "read and change rows",
  ReadOnly: "read rows",
  None: "no access",
};

function entryActions(grant: Grant): Html {
  const { holder, database, tables = [], expires } = grant;
  if (tables.length > 1) return hint("covers several tables; edit it in the access file");
  const place = { user: holderText(holder), database, table: tables[0] };
  const temporary = expires === undefined ? undefined : "yes";
  const what = unseen(" the entry for ", describePlace(grant));
  return html`<a href="${pathOf("/access/entry", { ...place, temporary })}">Change${what}</a> <a href="${pathOf("/access/end", place)}">Revoke${what}</a>`;
}

/** A group's members, or the visible local groups of a user. */
function membershipOf(visitor: Visitor, holder: Holder): Part {
  const { snapshot, isAdministrator } = visitor;
  const group = groupOf(holder);
  const isLocal = isLocalGroupName(group);
  const related = group
    ? (snapshot.groups.get(group)?.members ?? []).map(userHolder)
    : listLocalGroups(snapshot, holderText(holder)).map(groupHolder);
  const list = related.flatMap((one) => {
    if (mayManage(visitor, one)) return html`<li>${userLink(one)}</li>`;
    return group ? html`<li><bdi>${holderText(one)}</bdi></li>` : [];
  });
  if (!group && list.length === 0) return undefined;
  const none = isLocal
    ? "No members yet. The grants of this group apply to those whom you add."
    : "The users whose tokens name this group.";
  const link = (label: string, path: string, action?: string) =>
    linkButton(label, path, { user: holderText(holder), action });
  const manage = html`<p class="actions">${link("Change members", "/access/members")}${link("Remove group", "/access/act", "remove")}</p>`;
  return html`<h2>${group ? "Members" : "Groups"}</h2>
${list.length > 0 ? html`<ul class="plain">${list}</ul>` : empty(none)}
${isLocal && isAdministrator && manage}`;
}

export async function showUser(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { snapshot, isAdministrator } = visitor;
  const { passwords } = c.var.gateway.configuration.auth;
  const username = c.req.query("user") ?? "";
  const holder = readHolder(username);
  requireManageable(visitor, holder);
  const user = snapshot.users.get(username);
  const isUser = groupOf(holder) === undefined;
  const otherNames = [...namesOfPerson(snapshot, username)].filter((name) => name !== username);
  const link = (label: string, path: string, kind?: string) =>
    linkButton(label, path, { user: username }, kind);
  const act = (action: string, label: string) =>
    linkButton(label, "/access/act", { user: username, action });
  const isExternal = isExternalUsername(username);
  const hasPassword = passwords && !isExternal;
  const manage = html`<h2>Account</h2><p class="actions">${hasPassword && [act("password", "Set password"), act("unlock", "Unlock")]}${
    user?.disabled ? act("enable", "Enable") : act("disable", "Disable")
  }${user && act("remove", "Remove")}</p>`;
  const grants = table(
    `Grants of ${holderName(holder)}`,
    ["Where", "Role", "Limits", ["Expires", "moment"], ["Action", "moment"]],
    [...visibleEntries(visitor, holder), ...visibleGroupEntries(visitor, holder)].map((grant) => [
      html`<code>${describePlace(grant)}</code>`,
      html`${roleBadge(grant.role)}${hint(rights[grant.role])}`,
      limitsOf(grant),
      expiry(grant, Date.now()),
      grant.holder === holder
        ? entryActions(grant)
        : html`by <bdi>${holderName(grant.holder)}</bdi>`,
    ]),
    html`No grants. <a href="${pathOf("/access/entry", { user: username })}">Add the first entry</a> for a database or a table.`,
  );
  return sendPage(c, {
    title: holderName(holder),
    section: "Access",
    path: html`<a href="/access">Access</a>`,
    heading: html`<bdi>${holderName(holder)}</bdi> ${holderMark(snapshot, holder)}`,
    actions: [
      isUser && isAdministrator && link("Sessions", "/sessions"),
      isUser && link("Test a query", "/access/check"),
      link("Grant access", "/access/entry", " primary"),
    ],
    content: html`${isUser && (await accountFacts(c, username))}
${otherNames.length > 0 && html`<p class="quiet">Same person as <bdi>${otherNames.join(", ")}</bdi>: approvals count all names as one.</p>`}
<h2>Grants</h2>
${grants}
${effectiveSection(c, holder)}
${testSection(c, holder)}
${isUser && (await recentDenials(c, username))}
${membershipOf(visitor, holder)}
${isUser && isAdministrator && (await tokenSection(c, username))}
${isAdministrator && (user !== undefined || isExternal) && manage}`,
  });
}

function checkResult(
  visitor: Visitor,
  { allowed, code, message, body, query, decided }: PredictedOutcome,
): Html {
  const rows = (decided?.decisions ?? []).map(({ role, entry, boundary, reason, filters }, at) => {
    const additions = addedTexts(filters);
    const { operation = "", database = "", tables = [] } = query?.accesses[at] ?? {};
    return [
      operation,
      html`<code>${tables.length === 0 ? database : `${database}.${tables.join(", ")}`}</code>`,
      entry === undefined ? "no entry" : html`${role} by <code>${entry}</code>`,
      boundary === undefined ? "-" : visibleBoundary(visitor, boundary),
      reason,
      additions.length === 0 ? "-" : html`<code>${additions.join(", ")}</code>`,
    ];
  });
  const columns = ["Operation", "Where", "Decided by", "Boundary", "Reason", "Added conditions"];
  const isMessageShown =
    message !== undefined &&
    (decided?.decisions ?? []).every(
      ({ boundary = "" }) => visibleBoundary(visitor, boundary) === boundary,
    );
  const verdict = allowed ? mark(true, "Allowed") : mark(false, html`Denied: <code>${code}</code>`);
  return html`<section aria-live="polite"><h2>Result</h2><p>${verdict}</p>
${isMessageShown && html`<p>${message}</p>`}
${rows.length > 0 && table("Decisions", columns, rows)}
${body && html`<h3>Forwarded query</h3><pre>${body.toString()}</pre>`}</section>`;
}

function sendCheck(c: ConsoleRequest, state: FormState, outcome?: PredictedOutcome): Response {
  const form = html`<div class="group">
${field(state, { name: "user", label: "User", more: required })}
${field(state, { name: "via", label: "Interface", values: ["query", "mcp"] })}
${field(state, { name: "groups", label: "Groups of the token", hint: "For users of an issuer, such as staff:engineering. Put a name with a comma in double quotes" })}
</div>
${field(state, { name: "query", type: "area", label: "Query", hint: 'JSON, such as {"Select": {"database": "main", "from": "users", "columns": ["id"]}}' })}
<div class="actions"><button class="primary">Test</button></div>`;
  return sendPage(c, {
    title: "Test a query",
    section: "Access",
    failure: state.failure,
    path: html`<a href="/access">Access</a>`,
    content: html`<p>Shows how the gateway would currently decide. Nothing is sent to a database.</p>
${warnings(predictionWarnings(c.var.gateway.configuration))}
${postForm(visitorOf(c).csrf, "/access/check", "sheet narrow", form)}
${outcome && checkResult(visitorOf(c), outcome)}`,
  });
}

const check: ConsoleForm = {
  start: ({ req }) => new Map([["user", req.query("user") ?? ""]]),
  require: managerOf,
  send: sendCheck,
  async submit(c, fields) {
    const { queries, configuration } = c.var.gateway;
    const visitor = visitorOf(c);
    const user = fields.get("user") ?? "";
    requireManageable(visitor, holderIn(fields));
    const via = fields.get("via") === "mcp" ? "mcp" : "query";
    const caller = { user, via, groups: parseList(fields.get("groups")) } as const;
    const body = Buffer.from(fields.get("query") ?? "");
    const form = configuration.upstream.query_form;
    const outcome = predictOutcome(visitor.snapshot, caller, body, { queries, form });
    const accesses = outcome.query?.accesses ?? [];
    if (!accesses.every(({ database }) => visitor.maySee(database)))
      throw new Refusal("role_insufficient");
    const isSeen = accesses.every(({ database, tables }) =>
      (tables.length === 0 ? [undefined] : tables).every((table) =>
        maySeeDecision(visitor, { username: user, groups: caller.groups }, { database, table }),
      ),
    );
    if (!isSeen) {
      const message = "An entry that you may not see decides on this query. Ask an administrator.";
      throw new Failure(403, message);
    }
    return sendCheck(c, { fields }, outcome);
  },
};

export function newPassword(state: FormState, label: string, advice = "Share it privately.") {
  return field(state, {
    name: "new_password",
    label,
    hint: `At least 8 characters. ${advice}`,
    type: "password",
    autocomplete: "new-password",
    more: required,
  });
}

export async function readNewHash(c: ConsoleRequest): Promise<string> {
  const { gateway, listener, form, session } = c.var;
  const password = form.get("new_password") ?? "";
  gateway.passwordRule(password);
  const origin = listener.originOf(c.env.incoming);
  return hashNewPassword(gateway.login, origin, session?.username, password);
}

type HolderAction = Omit<AccountAction, "command"> & {
  readonly command: Pick<AccountAction["command"], "done">;
};

const groupActions: Readonly<Record<string, HolderAction>> = {
  remove: {
    plan(current, actor, { username }, configuration) {
      const name = groupOf(readHolder(username)) ?? "";
      return actions.removeGroup.plan(current, actor, { name }, configuration);
    },
    command: {
      done: (username) => `Removed the ${holderName(readHolder(username))} and its entries.`,
    },
    form: {
      title: "Remove",
      sentence: "Removes the group and all its grants permanently. Its members stay.",
      button: "Remove permanently",
      isDangerous: true,
    },
  },
};

function actionOf(fields: Fields): HolderAction {
  const isGroup = groupOf(holderIn(fields)) !== undefined;
  const [, action] =
    Object.entries(isGroup ? groupActions : accountActions).find(
      ([name]) => name === fields.get("action"),
    ) ?? [];
  if (action === undefined) throw new Refusal("not_found");
  return action;
}

const act: ConsoleForm = {
  start: ({ req }) => new Map(Object.entries(req.query())),
  require(c, fields) {
    const visitor = visitorOf(c);
    actionOf(fields);
    requireAdministrator(visitor.snapshot, visitor.actor);
    requireManageable(visitor, holderIn(fields));
  },
  send(c, { fields, failure }) {
    const holder = holderIn(fields);
    const { form, needsPassword } = actionOf(fields);
    const { title, sentence, button, isDangerous } = form;
    const state = { fields: new Map(), failure };
    return sendForm(c, state, {
      holder,
      sentence,
      title: `${title} ${holderName(holder)}`,
      action: "/access/act",
      heading: html`${title} <bdi>${holderName(holder)}</bdi>`,
      listsState: true,
      form: html`${hidden("action", fields.get("action") ?? "")}${needsPassword && newPassword(state, "New password")}`,
      button: html`<button class="${isDangerous ? "danger" : "primary"}">${button}</button>`,
    });
  },
  async submit(c, fields) {
    const holder = holderIn(fields);
    const username = holderText(holder);
    const action = actionOf(fields);
    const { snapshot, actor } = visitorOf(c);
    action.plan(snapshot, actor, { username }, c.var.gateway.configuration);
    const passwordHash = action.needsPassword && (await readNewHash(c));
    if (action.unlocks === "only") await requireConfirmation(c);
    else await makeChange(c, holder, action, { username, ...(passwordHash && { passwordHash }) });
    if (action.unlocks) await c.var.gateway.shared.throttle.unlock(username);
    if (action.unlocks === "only") noteChange(c, unlockedUser(username));
    const undo = action.undo && {
      path: "/access/act",
      fields: { user: username, action: action.undo },
    };
    const user = visitorOf(c).snapshot.users.get(username);
    notify(c, action.command.done(username, user), undo);
    const isRemoved = fields.get("action") === "remove";
    return isRemoved ? "/access" : userPath(holder);
  },
};

const howToPreview = html`<p class="quiet">Fill in the form and choose <strong>Preview</strong> to read here what the entry will allow.</p>`;

function warnings(sentences: readonly string[]): Html[] {
  return sentences.map((one) => html`<p><strong>Warning:</strong> ${plainWords(one)}</p>`);
}

function previewButton(path: string): Html {
  return html`<button name="look" value="preview" formnovalidate formaction="${path}#preview">Preview</button>`;
}

function newUserOf({ gateway, form }: ConsoleRequest["var"]) {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const password = form.get("new_password") ?? "";
  const { data, error } = bodies.addUser.safeParse({
    username: at("user"),
    email: at("email") || undefined,
    password,
    role: at("role"),
    database: at("database"),
  });
  const wrong = new Map(
    error?.issues.map(({ path: [key], message }) => [
      key === "username" ? "user" : String(key),
      message,
    ]),
  );
  try {
    if (gateway.configuration.auth.passwords) gateway.passwordRule(password);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    wrong.set("new_password", error.message);
  }
  if (wrong.size > 0 || data === undefined) throw invalidFields(wrong);
  const { username, email, role, database = "" } = data;
  return { username, email: email ?? undefined, grant: { database, role } };
}

const addUser: ConsoleForm = {
  start: () => new Map([["role", "ReadOnly"]]),
  require: managerOf,
  async send(c, state) {
    const [user = "", database, role] = ["user", "database", "role"].map((name) =>
      state.fields.get(name)?.trim(),
    );
    const isComplete = user !== "" && isDatabaseOrEvery(database) && isRole(role);
    const names = isComplete && (await c.var.suggestNames(visitorOf(c).actor, database, ""));
    const preview = names
      ? html`<p><strong>${plainWords(entryInWords({ holder: userHolder(user), database, role }, true))}</strong></p>
${warnings(names.problem === undefined ? [] : [names.problem])}`
      : howToPreview;
    return sendForm(c, state, {
      title: "Add a user",
      action: "/access/new",
      form: html`<div class="group">
${field(state, { name: "user", label: "Username", hint: "1 to 64 letters, digits or . _ - @", more: required })}
${field(state, { name: "email", label: "Email", hint: "Optional", type: "email" })}
${field(state, { name: "database", label: "Database", hint: "A name, or * for all databases", more: required })}
${field(state, { name: "role", label: "Role", values: roles })}
</div>
${
  c.var.gateway.configuration.auth.passwords
    ? newPassword(state, "Initial password")
    : html`<p>The user has no password: issue tokens with <code>gatehouse token issue</code>. To grant access to a user of an identity provider, search the list of users for the full name.</p>`
}`,
      button: html`<button class="primary">Add user</button> ${previewButton("/access/new")}`,
      preview,
    });
  },
  async submit(c, fields) {
    if (fields.get("look") === "preview") return addUser.send(c, { fields });
    const user = newUserOf(c.var);
    const { snapshot, actor } = visitorOf(c);
    const { configuration } = c.var.gateway;
    actions.addUser.plan(snapshot, actor, user, configuration);
    const credential = configuration.auth.passwords
      ? { passwordHash: await readNewHash(c) }
      : { tokensValidAfter: endOfEarlierTokens() };
    const holder = userHolder(user.username);
    const grant = { ...user.grant, holder };
    const { problem } = await c.var.suggestNames(actor, grant.database, "");
    const { after } = await makeChange(c, holder, actions.addUser, { ...user, ...credential });
    const sentence = `Added ${user.username}. ${entryInWords(grant)}`;
    notify(c, sentence, undefined, warningsOf(c, after, grant, problem));
    return userPath(holder);
  },
};

/** Tables with more columns get a text field instead of boxes. */
const MOST_BOXES = 40;
const lists = ["columns", "writable_columns", "require_where", "require_approval", "approvers"];
const counts = ["max_rows", "max_changes"];

/** Joins check boxes: `columns:id` and `columns:name` become `columns`. */
function gatherBoxes(form: Fields): Fields {
  const gathered = new Map<string, string>();
  for (const [key, value] of form) {
    const [, name, box] = /^(\w+):(.+)$/s.exec(key) ?? [];
    if (name === undefined || box === undefined) gathered.set(key, value);
    else {
      const before = gathered.get(name);
      gathered.set(name, before ? `${before}, ${box}` : box);
    }
  }
  return gathered;
}

async function plannedSnapshot(snapshot: Snapshot, changes: readonly Change[]): Promise<Snapshot> {
  const replacement = planReplacement(snapshot, changes);
  return runCooperatively(replaceRecords(snapshot, replacement, snapshot.version));
}

/** Problems of an entry, as `gatehouse config check` reports them. */
function warningsOf(
  c: ConsoleRequest,
  snapshot: Snapshot,
  grant: Grant,
  problem: string | undefined,
): string[] {
  const setting = questionSetting(c.var.gateway.configuration);
  const found = [...lintEntry(snapshot, grant, setting)];
  const sentences = found.map((one) => `${one.charAt(0).toUpperCase()}${one.slice(1)}.`);
  return problem === undefined ? sentences : [problem, ...sentences];
}

/**
 * The future access by an entry in words, with everything else that counts.
 *
 * @throws Failure or Refusal as saving the entry would
 */
async function previewEntry(
  c: ConsoleRequest,
  fields: Fields,
  problem: string | undefined,
): Promise<Html> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const grant = entryOf(fields);
  const { holder, database } = grant;
  const [table] = grant.tables ?? [];
  const keepsOther = fields.get("beside") === "yes";
  const input = { grant, keepsOther, replacesLimits: true };
  const changes = actions.grant.plan(snapshot, actor, input, c.var.gateway.configuration);
  const after = await plannedSnapshot(snapshot, changes);
  const stored = entriesAt(ownGrants(after, holder), database, table).find((one) =>
    isSamePlace(one, grant),
  );
  const own = entriesAt(ownGrants(snapshot, holder), database, table);
  const now =
    own.length > 0
      ? own.map((one) => entryInWords(one)).join(" ")
      : remainingAccess(visitor, holder, database, table, "");
  const notes = notesOnEntry(after, stored ?? grant, Date.now(), manageableBy(snapshot, actor));
  return html`<p><strong>${plainWords(entryInWords(grant, true))}</strong></p>
${notes.length > 0 && html`<ul>${notes.map((note) => html`<li>${plainWords(note)}</li>`)}</ul>`}
${warnings(warningsOf(c, after, stored ?? grant, problem))}
<p class="quiet">${now && html`Now: ${plainWords(now)} `}Nothing is saved yet.</p>`;
}

/** @param isAsked false if an entry that cannot be saved yet only has no preview */
async function sendEntry(
  c: ConsoleRequest,
  { failure, ...given }: FormState,
  isAsked = false,
): Promise<Response> {
  const fields = gatherBoxes(given.fields);
  const state = { fields, failure };
  const at = (name: string) => fields.get(name)?.trim() ?? "";
  const holder = holderIn(fields);
  const names = await c.var.suggestNames(visitorOf(c).actor, at("database"), at("table"));
  const isListed = names.columns.length > 0 && names.columns.length <= MOST_BOXES;
  const columns = (name: string, label: string, hint: string, none?: string) =>
    isListed
      ? boxes(state, { name, label, hint, offered: names.columns }, none)
      : field(state, {
          name,
          label,
          hint: `${hint}. Separate names with commas${none ? `, or enter - for ${none}.` : "."}`,
        });
  const limits = [...lists, ...counts, "row_filter"];
  const isOpen = fields.get("look") === "yes" || limits.some((name) => fields.get(name));
  const isComplete = failure === undefined && at("database") !== "";
  const preview =
    isAsked || isComplete
      ? await previewEntry(c, fields, names.problem).catch((error: unknown) => {
          const isExpected = error instanceof Failure || error instanceof Refusal;
          if (isAsked || !isExpected) throw error;
          return howToPreview;
        })
      : howToPreview;
  const form = html`<div class="group">
${field(state, { name: "database", label: "Database", hint: "A name, or * for all databases", more: required, offered: names.databases })}
${field(state, { name: "table", label: "Table", hint: "Empty for all; a name, or a prefix such as customer_*", offered: names.tables })}
${field(state, { name: "role", label: "Role", values: entryRoles })}
${field(state, { name: "expires", label: "Expires (UTC)", type: "datetime-local", hint: "Empty: never" })}
</div>
${checkbox("beside", fields.get("beside") === "yes", "Keep the other entry if only one of the two expires")}
<details${isOpen && html` open`}><summary>Limits</summary>
<p class="hint">Only for ReadWrite and ReadOnly. An empty field sets no limit.</p>
<div class="${isListed ? "after" : "group"}">
${columns("columns", "Readable columns", "None: all")}
${columns("writable_columns", "Writable columns", "None: the readable ones", "no column")}
${columns("require_where", "Required conditions", "A change must compare these columns with = or IN")}
</div>
<div class="group">
${field(state, { name: "max_rows", label: "Row limit", hint: "Rows in one response" })}
${field(state, { name: "max_changes", label: "Change limit", hint: "Rows changed by one query" })}
${field(state, { name: "require_approval", label: "Require approval", hint: "Such as DELETE, UPDATE" })}
${field(state, { name: "approvers", label: "Approvers", hint: "Usernames, or group:<name>. Empty: everyone who may grant there" })}
</div>
${field(state, { name: "row_filter", type: "area", label: "Row filter", hint: "One condition per line, all must hold: tenant = @tenant, size < 5, region IN (eu, us)" })}
</details>`;
  const look = html` <button name="look" value="yes" formnovalidate>List tables and columns</button>`;
  return sendForm(c, state, {
    holder,
    form,
    title: `Grant access to ${holderName(holder)}`,
    action: "/access/entry",
    heading: html`Grant access to <bdi>${holderName(holder)}</bdi>`,
    sentence:
      "This entry replaces the one for the same database or table. It takes effect immediately, also for issued tokens.",
    button: html`<button class="primary">Save entry</button> ${previewButton("/access/entry")}${names.databases.length > 0 && look}`,
    preview,
  });
}

function entryOf(form: Fields): Grant {
  const at = (name: string) => (form.get(name) ?? "").trim();
  const given = (names: readonly string[]) => names.filter((name) => at(name) !== "");
  const expires = momentIn(at("expires"));
  const lines = at("row_filter")
    .split("\n")
    .filter((line) => line.trim() !== "");
  const record: Record<string, unknown> = {
    ...writtenHolder(readHolder(at("user"))),
    database: at("database"),
    role: at("role"),
    ...(at("table") !== "" && { tables: [at("table")] }),
    ...(expires !== "" && { expires }),
    ...Object.fromEntries(
      given(lists).map((name) => [name, at(name) === "-" ? [] : parseList(at(name))]),
    ),
    ...Object.fromEntries(given(counts).map((name) => [name, Number(at(name))])),
    ...(lines.length > 0 && { row_filter: lines.map(readCondition) }),
  };
  const wrong = new Map<string, string>();
  const note: Report = ({ key = "user", reason, rule = reason }) =>
    wrong.set(key === "tables" ? "table" : key, rule.charAt(0).toUpperCase() + rule.slice(1));
  const grant = readGrant(record, 0, note);
  if (grant !== undefined && wrong.size === 0) return grant;
  // Limits are not parsed if the place or the role is wrong.
  const role = entryRoles.find((one) => one === record.role) ?? "ReadOnly";
  readGrant({ ...record, role, database: EVERY_DATABASE }, 0, note);
  const bad = lines.find((line) => readCondition(line) === undefined);
  if (bad !== undefined) {
    const message = `\`${bad}\` is not a condition such as tenant = @tenant. Write one condition per line, and quote text that is more than one word.`;
    wrong.set("row_filter", message);
  }
  throw invalidFields(wrong);
}

function fieldsOf(place: Fields, entry: Grant | undefined): Fields {
  if (entry === undefined) return new Map([["role", "ReadOnly"], ...place]);
  const { tables: _, ...keys } = viewEntry(entry);
  const texts = Object.entries(keys).map(
    ([key, value]) =>
      [key, Array.isArray(value) ? joinNames(value.map(String)) || "-" : String(value)] as const,
  );
  const fields = new Map([...texts, ...place]);
  const { rowFilter, expires } = entry;
  if (rowFilter !== undefined) fields.set("row_filter", rowFilter.map(writeCondition).join("\n"));
  if (expires !== undefined) fields.set("expires", writtenTime(expires).replace("Z", ""));
  return fields;
}

function mayFill(fields: Fields, grant: Grant): boolean {
  try {
    return isDeepStrictEqual(entryOf(fields), grant);
  } catch (error) {
    if (error instanceof Failure) return false;
    throw error;
  }
}

/** Restores the entry of a place. Undefined if one form cannot, or if nothing was changed. */
function undoEntry(
  { before, after }: Changed,
  holder: Holder,
  database: string,
  table: string | undefined,
): Undo | undefined {
  const [entry, ...others] = entriesAt(ownGrants(before, holder), database, table);
  const entries = entriesAt(ownGrants(after, holder), database, table);
  if (others.length > 0 || entries.length > 1) return undefined;
  const place = { user: holderText(holder), database, table: table ?? "" };
  if (entry === undefined) return { path: "/access/end", fields: place };
  if (isDeepStrictEqual(entry, entries[0])) return undefined;
  const fields = fieldsOf(new Map(Object.entries(place)), entry);
  return mayFill(fields, entry)
    ? { path: "/access/entry", fields: Object.fromEntries(fields) }
    : undefined;
}

/** The entry that applies to a place without one of its own, as far as the visitor may see it. */
function remainingAccess(
  { snapshot, maySee }: Visitor,
  holder: Holder,
  database: string,
  table: string | undefined,
  when = " now",
): string {
  const name = holderName(holder);
  const caller = callerFor(holder);
  const found = decidingEntry(snapshot, caller, database, table, Date.now());
  if (found === undefined) {
    if (mayHaveTokenGroups(snapshot, holderText(holder))) return "";
    return `${name} has no access there${when}.`;
  }
  if (!maySee(found.grant.database)) return "";
  if (found.conflict !== undefined) return conflictInWords([name], found.conflict);
  return `The entry for ${found.name} applies there${when}: ${found.isExpired ? "expired" : found.grant.role}.`;
}

function placeIn(c: ConsoleRequest): Map<string, string> {
  return new Map(["user", "database", "table"].map((name) => [name, c.req.query(name) ?? ""]));
}

/** The entry that a drafted grant would override: its limits are kept. */
function draftedFrom(c: ConsoleRequest, place: Fields): Grant | undefined {
  const { snapshot, maySee } = visitorOf(c);
  const [username = "", database = "", table] = place.values();
  const groups = c.req.queries("group") ?? [];
  const caller = { username, groups };
  const found = decidingEntry(snapshot, caller, database, table || undefined, Date.now());
  return found?.isExpired === false && maySee(found.grant.database) ? found.grant : undefined;
}

const entry: ConsoleForm = {
  start(c) {
    const { snapshot, maySee } = visitorOf(c);
    const place = placeIn(c);
    const [username = "", database = "", table] = place.values();
    const role = c.req.query("role");
    if (role !== undefined) place.set("role", role);
    const grants = ownGrants(snapshot, readHolder(username));
    const entries = maySee(database) ? entriesAt(grants, database, table || undefined) : [];
    // A permanent entry and a temporary one may exist side by side.
    const isTemporary = c.req.query("temporary") !== undefined;
    const found = entries.find(({ expires }) => (expires !== undefined) === isTemporary);
    if (entries.length > 1) place.set("beside", "yes");
    return fieldsOf(
      place,
      found ?? entries[0] ?? (role === undefined ? undefined : draftedFrom(c, place)),
    );
  },
  require: (c, fields) => requireManageable(visitorOf(c), holderIn(fields), mayGrantTo),
  send: sendEntry,
  async submit(c, fields) {
    // These two buttons change nothing.
    if (fields.get("look") === "yes") return sendEntry(c, { fields });
    if (fields.get("look") === "preview") return sendEntry(c, { fields }, true);
    const holder = holderIn(fields);
    const keepsOther = fields.get("beside") === "yes";
    const grant = entryOf(gatherBoxes(fields));
    const [table] = grant.tables ?? [];
    const { problem } = await c.var.suggestNames(visitorOf(c).actor, grant.database, table ?? "");
    const changed = await makeChange(c, holder, actions.grant, {
      grant,
      replacesLimits: true,
      keepsOther,
    });
    const undo = undoEntry(changed, holder, grant.database, table);
    notify(c, entryInWords(grant), undo, warningsOf(c, changed.after, grant, problem));
    return userPath(holder);
  },
};

/** The access now and without the entry. Undefined if the visitor may not revoke it. */
async function previewRevoke(c: ConsoleRequest, place: EntryPlace): Promise<Html | undefined> {
  const visitor = visitorOf(c);
  const { snapshot, actor } = visitor;
  const { holder, database, table } = place;
  let changes: readonly Change[];
  try {
    changes = actions.revoke.plan(snapshot, actor, place, c.var.gateway.configuration);
  } catch (error) {
    if (error instanceof Refusal) return undefined;
    throw error;
  }
  const after = { ...visitor, snapshot: await plannedSnapshot(snapshot, changes) };
  const now = entriesAt(ownGrants(snapshot, holder), database, table);
  const then = remainingAccess(after, holder, database, table, "");
  return html`<p>Now: ${plainWords(now.map((one) => entryInWords(one)).join(" "))}</p>
${then && html`<p><strong>Then: ${plainWords(then)}</strong></p>`}`;
}

const revoke: ConsoleForm = {
  start: placeIn,
  require: (c, fields) => requireManageable(visitorOf(c), holderIn(fields)),
  async send(c, state) {
    const at = (name: string) => state.fields.get(name) ?? "";
    const holder = holderIn(state.fields);
    const [database, table] = [at("database"), at("table")];
    const place = placeName(database, table || undefined);
    const preview = await previewRevoke(c, { holder, database, table: table || undefined });
    return sendForm(c, state, {
      holder,
      title: `Revoke access to ${place}`,
      action: "/access/end",
      listsState: true,
      heading: html`Revoke the access of <bdi>${holderName(holder)}</bdi> to <code>${place}</code>?`,
      sentence:
        "Takes effect immediately, also for issued tokens. If there is a broader entry, it applies instead.",
      form: html`${hidden("database", database)}${hidden("table", table)}`,
      ...(preview && { preview }),
      button: html`<button class="danger">Revoke</button>`,
    });
  },
  async submit(c, fields) {
    const holder = holderIn(fields);
    const database = fields.get("database") ?? "";
    const table = fields.get("table") || undefined;
    const changed = await makeChange(c, holder, actions.revoke, { holder, database, table });
    const visitor = visitorOf(c);
    const left = remainingAccess(visitor, holder, database, table);
    const done = `Removed the entry of ${holderName(holder)} for ${placeName(database, table)}.`;
    notify(c, `${done} ${left}`.trim(), undoEntry(changed, holder, database, table));
    return mayManage(visitor, holder) ? userPath(holder) : "/access";
  },
};

/** Adds a group, or changes the members of the one that `user` names. */
const members: ConsoleForm = {
  start(c) {
    const user = c.req.query("user") ?? "";
    const { members = [] } =
      visitorOf(c).snapshot.groups.get(groupOf(readHolder(user)) ?? "") ?? {};
    return new Map(Object.entries({ user, members: members.join("\n") }));
  },
  require(c) {
    const { snapshot, actor } = visitorOf(c);
    requireAdministrator(snapshot, actor);
  },
  send(c, state) {
    const holder = state.fields.get("user") ? holderIn(state.fields) : undefined;
    const entries = holder ? visibleEntries(visitorOf(c), holder) : [];
    const title = holder ? `Change members of ${holderName(holder)}` : "Add a group";
    const name = { name: "name", label: "Name", hint: "1 to 63 letters, digits or _ -" };
    return sendForm(c, state, {
      holder,
      title,
      action: "/access/members",
      form: html`${!holder && field(state, { ...name, more: required })}
${field(state, { name: "members", type: "area", label: "Members", hint: "One username per line" })}`,
      button: html`<button class="primary">Save group</button>`,
      ...(entries.length > 0 && {
        preview: html`<ul>${entries.map((one) => html`<li>${plainWords(entryInWords(one))}</li>`)}</ul>`,
      }),
    });
  },
  async submit(c, fields) {
    const known = groupOf(holderIn(fields));
    const name = known ?? (fields.get("name") ?? "").trim();
    const holder = groupHolder(name);
    const given = parseList(fields.get("members")?.replaceAll("\n", ","));
    const wrong = new Map<string, string>();
    if (!isLocalGroupName(name)) wrong.set("name", `\`${name}\` is not a group name`);
    else if (known === undefined && mayManage(visitorOf(c), holder)) {
      wrong.set("name", "This group already exists");
    }
    const bad = given.find((member) => !isAnyUsername(member));
    if (bad !== undefined) wrong.set("members", `\`${bad}\` is not a username`);
    if (wrong.size > 0) throw invalidFields(wrong);
    const { before, after } = await makeChange(c, holder, actions.setGroup, {
      name,
      members: given,
    });
    const earlier = before.groups.get(name)?.members;
    const { members = [] } = after.groups.get(name) ?? {};
    const count = members.length === 0 ? "no members" : counted(members.length, "member");
    const listed = members.length === 0 ? "" : `: ${members.join(", ")}`;
    const user = holderText(holder);
    notify(
      c,
      `The group ${name} has ${count}${listed}.`,
      earlier
        ? { path: "/access/members", fields: { user, members: earlier.join("\n") } }
        : { path: "/access/act", fields: { user, action: "remove" } },
    );
    return userPath(holder);
  },
};

export const accessForms = {
  "/access/check": check,
  "/access/act": act,
  "/access/new": addUser,
  "/access/entry": entry,
  "/access/end": revoke,
  "/access/members": members,
};
