import * as z from "zod";
import {
  type Actor,
  type GrantOptions,
  planAddUser,
  planGrant,
  planPatchUser,
  planRemoveGroup,
  planRemoveUser,
  planRevoke,
  planSetGroup,
  planSetPassword,
  requireAdministrator,
  requireSelfOrAdministrator,
  requireUser,
  type UserPatch,
} from "../access/administration.ts";
import type { EntryPlace } from "../access/entry-view.ts";
import type { Grant, Group, User } from "../access/grant.ts";
import type { Change } from "../access/record-change.ts";
import { entryKeys } from "../access/records.ts";
import {
  isAnyUsername,
  isDatabaseOrEvery,
  isEmail,
  isExternalUsername,
  isRole,
  isUsername,
  type Role,
} from "../access/roles.ts";
import { blankUser, type Snapshot } from "../access/snapshot.ts";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { type Configuration, issuerPrefixes } from "../config/schema.ts";
import type { AuditedChange } from "../observe/audit-line.ts";

/** A text that `isValid`. Any other is refused with `code`. */
function text<Text extends string>(isValid: (text: unknown) => text is Text, code: RefusalCode) {
  return z.string().transform((given, { issues }): Text => {
    if (isValid(given)) return given;
    const { message } = new Refusal(code);
    issues.push({ code: "custom", params: { code }, message, input: given });
    return z.NEVER;
  });
}

export function issueCode(issue: z.core.$ZodIssue): RefusalCode | undefined {
  return issue.code === "custom" ? issue.params?.code : undefined;
}

const email = text(isEmail, "invalid_email");

/** The JSON body of each action over HTTP. A console form uses the same checks. */
export const bodies = {
  addUser: z.strictObject({
    username: text(isUsername, "invalid_username"),
    email: email.nullish(),
    password: z.string(),
    role: text(isRole, "invalid_role"),
    database: text(isDatabaseOrEvery, "invalid_database").optional(),
  }),
  patchUser: z
    .strictObject({
      email: email.nullish(),
      disabled: z.boolean().optional(),
      same_as: text(isAnyUsername, "invalid_username").nullish(),
    })
    .refine((fields) => Object.keys(fields).length > 0, "email, disabled or same_as must be given")
    .transform(({ same_as: sameAs, ...fields }) => ({ ...fields, sameAs })),
  setPassword: z.strictObject({ old_password: z.string().optional(), new_password: z.string() }),
  setGroup: z.strictObject({ members: z.array(text(isAnyUsername, "invalid_username")) }),
  grant: z.strictObject({
    role: z.string(),
    ...Object.fromEntries(
      Object.keys(entryKeys)
        .filter((key) => key !== "tables")
        .map((key) => [key, z.unknown().optional()]),
    ),
  }),
};

interface Named {
  readonly username: string;
}

export interface Action<Input> {
  /**
   * Judges the change against the current state. Called before a password is hashed, so that
   * unauthorized callers cannot cause that work, and again under the lock.
   *
   * @throws Refusal why the actor may not make it
   */
  plan(current: Snapshot, actor: Actor, input: Input, settings: Configuration): readonly Change[];
}

/** An action on a user that takes no input but, at most, a new password. */
export interface AccountAction extends Action<Named & { readonly passwordHash?: string }> {
  readonly needsPassword?: boolean;
  /** Clears the user's failed logins, besides the change or instead of one. */
  readonly unlocks?: "also" | "only";
  /** The action that takes it back. */
  readonly undo?: "disable" | "enable";
  readonly command: {
    readonly description: string;
    readonly hasForce?: true;
    readonly done: (username: string, user: User | undefined) => string;
  };
  readonly form: {
    readonly title: string;
    readonly sentence: string;
    readonly button: string;
    readonly isDangerous?: boolean;
  };
}

function action<Input>(defined: Action<Input>): Action<Input> {
  return defined;
}

function setDisabled(disabled: boolean): AccountAction["plan"] {
  return (current, actor, { username }, configuration) =>
    planPatchUser(current, actor, username, { disabled }, issuerPrefixes(configuration));
}

/** `gatehouse user <name>`, and the buttons of a user's page in the console. */
export const accountActions = {
  password: {
    plan(current, actor, { username, passwordHash = "" }) {
      requireSelfOrAdministrator(current, actor, username);
      return planSetPassword(current, username, passwordHash);
    },
    needsPassword: true,
    unlocks: "also",
    command: {
      description: "set a user's password and revoke their tokens",
      done: (username) => `Changed the password of ${username}. All earlier tokens are revoked.`,
    },
    form: {
      title: "Set a new password for",
      sentence: "Revokes all tokens, apps and sessions of the old password.",
      button: "Set password",
    },
  },
  remove: {
    plan: (current, actor, { username }) => planRemoveUser(current, actor, username),
    command: {
      description: "remove a user, their grants and their tokens",
      hasForce: true,
      done: (username) => `Removed ${username} and all their grants.`,
    },
    form: {
      title: "Remove",
      sentence: "Removes the user and all grants permanently, and revokes all tokens.",
      button: "Remove permanently",
      isDangerous: true,
    },
  },
  disable: {
    plan: setDisabled(true),
    undo: "enable",
    command: {
      description: "refuse a user's logins and revoke their tokens",
      hasForce: true,
      done: (username) => `Disabled ${username}. Logins are refused and all tokens are revoked.`,
    },
    form: {
      title: "Disable",
      sentence:
        "Revokes all tokens, apps and sessions. The user cannot log in until enabled again. Grants stay.",
      button: "Disable",
      isDangerous: true,
    },
  },
  enable: {
    plan: setDisabled(false),
    unlocks: "also",
    undo: "disable",
    command: {
      description:
        "let a disabled user in again and clear failed logins; earlier tokens stay revoked",
      done: (username, user) =>
        `Enabled ${username}. ${user?.passwordHash === undefined || isExternalUsername(username) ? "New tokens are accepted" : "The password works again"}; earlier tokens stay revoked.`,
    },
    form: {
      title: "Enable",
      sentence:
        "The user can sign in again, and failed logins are cleared. Earlier tokens, apps and sessions stay revoked.",
      button: "Enable",
    },
  },
  unlock: {
    plan(current, actor, { username }) {
      requireAdministrator(current, actor);
      requireUser(current, username);
      return [];
    },
    unlocks: "only",
    command: {
      description: "clear a user's failed logins, so that the user can log in again at once",
      done: (username) => `Cleared the failed logins of ${username}.`,
    },
    form: {
      title: "Unlock",
      sentence:
        "Clears the failed logins of the user from all addresses. Tokens, sessions and the password stay.",
      button: "Unlock",
    },
  },
} as const satisfies Record<string, AccountAction>;

/** For the audit. */
export function unlockedUser(user: string): AuditedChange {
  return { change: "failed logins cleared", user };
}

type NewUser = Partial<User> & Named & { readonly grant?: UserGrant | undefined };
type UserGrant = Pick<Grant, "database"> & { readonly role: Role };

/** The other actions. HTTP, command line and console pass them their input. */
export const actions = {
  addUser: action<NewUser>({
    plan: (current, actor, { grant, ...fields }) =>
      planAddUser(current, actor, { ...blankUser(fields.username), ...fields }, grant),
  }),
  patchUser: action<Named & UserPatch>({
    plan: (current, actor, { username, ...patch }, configuration) =>
      planPatchUser(current, actor, username, patch, issuerPrefixes(configuration)),
  }),
  setGroup: action<Group>({
    plan: (current, actor, { name, members }) =>
      planSetGroup(current, actor, { name, members: [...new Set(members)] }),
  }),
  removeGroup: action<Pick<Group, "name">>({
    plan: (current, actor, { name }) => planRemoveGroup(current, actor, name),
  }),
  grant: action<GrantOptions & { readonly grant: Grant }>({
    plan: (current, actor, { grant, ...options }) => planGrant(current, actor, grant, options),
  }),
  revoke: action<EntryPlace>({
    plan: (current, actor, place) => planRevoke(current, actor, place),
  }),
};
