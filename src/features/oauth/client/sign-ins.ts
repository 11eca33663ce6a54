import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { JWTPayload } from "jose";
import { LRUCache } from "lru-cache";
import * as z from "zod";
import {
  type Attributes,
  readAttributes,
  type Subject,
  type User,
} from "../../../core/access/grant.ts";
import type { Snapshot } from "../../../core/access/snapshot.ts";
import { epochSeconds } from "../../../core/base/clock.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { hashId, seal, unseal } from "../../../core/base/sealed-bytes.ts";
import type { IssuerSettings } from "../../../core/config/schema.ts";
import { identify } from "../../../core/identity/authenticate.ts";
import type { LiveRevocations } from "../../../core/identity/revocations.ts";
import {
  isSignInEnded,
  issuerPrefix,
  newSignIn,
  parseSignIn,
  SESSION_TOKEN_SECONDS,
  sessionKey,
  sessionRevocation,
  signInRevocation,
  subjectKey,
  subjectRevocation,
} from "../../../core/identity/sign-in.ts";
import type { Log } from "../../../core/observe/log.ts";
import {
  type Groups,
  type Logout,
  readGroups,
  readIdentity,
} from "../../issuers/external-token.ts";
import type { Issuers } from "../../issuers/issuers.ts";
import { lifetimes } from "../server/protocol.ts";
import { type AuthorizationState, type StateStore, takeRecord } from "../server/state-store.ts";
import {
  type AuthenticationDemand,
  describeProblem,
  type LoginIssuer,
  type ProviderAnswer,
  ProviderRefused,
  RelyingParty,
  refusalReason,
} from "./relying-party.ts";

const SIGN_IN = "SignIn";
const REQUEST = "SignInRequest";
const TURN = "SignInCheck";
const LOGOUT = "LogoutToken";

const REQUEST_SECONDS = 600;
/** A sign-in without a refresh token, and how long an unreachable provider is tolerated. */
const HOUR = 3600;
const DAY = 24 * HOUR;
/**
 * For which one process alone may ask about a sign-in: longer than the up to four requests of a
 * check, which end after 5 seconds each.
 */
const TURN_SECONDS = 30;
/** For which others wait for its result. */
const WAIT_MS = 15_000;
/** Between attempts to reach a provider that does not answer. */
const RETRY_SECONDS = 5;
const MAX_WAIT_SECONDS = 2;
const MAX_CACHED = 10_000;

const contentShape = z.object({
  issuer: z.string(),
  username: z.string(),
  /** The provider's `sub`. */
  subject: z.string(),
  groups: z.array(z.string()).readonly().optional(),
  droppedGroups: z.number(),
  ignoredGroups: z.array(z.string()).readonly().optional(),
  groupsProblem: z.string().optional(),
  attributes: z.record(z.string(), z.unknown()).optional(),
  /** Epoch seconds at which the user authenticated, if the provider says so. */
  authTime: z.number().optional(),
  /** Epoch seconds. */
  openedAt: z.number(),
  /** Epoch seconds of the last answer of the provider. */
  checkedAt: z.number(),
  /** Epoch seconds of the last attempt since then that brought no answer. */
  failedAt: z.number().optional(),
  /** Encrypted. */
  refreshToken: z.string().optional(),
});
type Content = z.infer<typeof contentShape>;

const requestShape = z.object({
  next: z.string(),
  maxAge: z.number().optional(),
  nonce: z.string(),
  verifier: z.string(),
});

/** Where a sign-in begins and ends. */
interface Place {
  readonly redirectUri: string;
  readonly browser: string;
}

function requestKey(prefix: string, { redirectUri, browser }: Place, state: string): string {
  return hashId(JSON.stringify([prefix, redirectUri, browser, state]));
}

/** The user of a sign-in, with what the provider has said. */
export interface SignedIn {
  readonly username: string;
  readonly credential: string;
  readonly subject: Pick<Subject, "username" | "groups" | "attributes">;
  /** How many groups have no valid name. */
  readonly droppedGroups: number;
  readonly ignoredGroups: readonly string[] | undefined;
  /** Epoch seconds at which the user authenticated, if the provider says so. */
  readonly authTime: number | undefined;
}

const PROVIDER_MESSAGE =
  "The identity provider does not respond as expected. Try again shortly, or ask an administrator.";

/** How far the provider's clock may be ahead. */
const CLOCK_AHEAD_SECONDS = 60;

/** The audit fields of a sign-in that failed. */
export function describeFailure({ code: outcome, detail, token = {} }: Refusal) {
  const { user, issuer, cause } = token;
  return { user, issuer, outcome, detail, cause };
}

/** True if the provider says that the user authenticated within the last `seconds`. */
export function isRecent({ authTime }: Pick<SignedIn, "authTime">, seconds: number): boolean {
  if (authTime === undefined) return false;
  const age = epochSeconds() - authTime;
  return age >= -CLOCK_AHEAD_SECONDS && age <= seconds;
}

function signedOut(): Refusal {
  return new Refusal("token_revoked", { detail: "signed_out" });
}

/** @throws Refusal `groups_unavailable` */
function signedIn(credential: string, content: Content): SignedIn {
  const { username, groups, groupsProblem, droppedGroups, ignoredGroups, authTime } = content;
  if (groupsProblem !== undefined) {
    throw new Refusal("groups_unavailable", { detail: groupsProblem, token: { user: username } });
  }
  const attributes = readAttributes(content.attributes);
  const subject = { username, ...(groups && { groups }), ...(attributes && { attributes }) };
  return { username, credential, subject, droppedGroups, ignoredGroups, authTime };
}

/** @throws Refusal `token_revoked` if it has ended, or its issuer is no longer configured */
async function readContent(
  store: StateStore,
  settings: readonly IssuerSettings[],
  id: string,
): Promise<Content> {
  const found = await store.find(SIGN_IN, id);
  if (found === undefined) throw signedOut();
  const content = contentShape.parse(JSON.parse(found.payload));
  // A prefix whose issuer has changed names other users, and other servers.
  const prefix = issuerPrefix(content.username);
  if (settings.some((one) => one.prefix === prefix && one.issuer === content.issuer))
    return content;
  throw new Refusal("token_revoked", { detail: "unknown_issuer" });
}

/** The user of a sign-in as last recorded, without asking the provider. @throws Refusal */
export async function recordedSignIn(
  store: StateStore,
  settings: readonly IssuerSettings[],
  credential: string,
): Promise<SignedIn> {
  const { id = "" } = parseSignIn(credential) ?? {};
  return signedIn(credential, await readContent(store, settings, id));
}

function writtenAttributes(attributes: Attributes | undefined) {
  return attributes && Object.fromEntries(attributes);
}

/** Groups are in the ID token, or else in the answer of the userinfo endpoint. */
async function groupsIn(
  { claims, userinfo }: ProviderAnswer,
  settings: IssuerSettings,
): Promise<Groups> {
  const groups = readGroups(claims ?? {}, { ...settings, groups_claim_optional: false });
  if (groups.groupsProblem !== "groups_missing") return groups;
  // A refresh may bring no ID token. Without userinfo the groups are then unknown, and not none.
  const found = userinfo === undefined ? claims : await userinfo();
  return found === undefined ? groups : readGroups(found, settings);
}

type Turn<Result> =
  | { readonly isOurs: true }
  /** Without a result if the process whose turn it is has none in time. */
  | { readonly isOurs: false; readonly result: Result | undefined };

/**
 * Lets one process at a time do some work, and others wait for its result.
 *
 * @param key of the work. No process takes its turn twice while the first one lasts.
 * @param findResult finds the result of another process. It is also called once in our own turn,
 *   since an earlier turn may have ended just before.
 */
export async function takeTurn<Result>(
  store: Pick<StateStore, "claim">,
  key: string,
  findResult: () => Promise<Result | undefined>,
  waitMs = WAIT_MS,
): Promise<Turn<Result>> {
  const isOurs = await store.claim(TURN, key, epochSeconds() + TURN_SECONDS);
  const end = performance.now() + waitMs;
  while (true) {
    const result = await findResult();
    if (result !== undefined) return { isOurs: false, result };
    if (isOurs) return { isOurs };
    if (performance.now() > end) return { isOurs, result };
    await delay(100);
  }
}

interface SignInOptions {
  /** All external issuers, also those without sign-in. */
  readonly settings: readonly IssuerSettings[];
  readonly state: AuthorizationState;
  readonly revocations: LiveRevocations;
  readonly issuers: Issuers;
  readonly log: Log;
}

interface Provider {
  readonly settings: LoginIssuer;
  readonly party: RelyingParty;
}

/**
 * Sign-ins through identity providers. Sessions and tokens refer to one by its credential; groups
 * and attributes stay here, and are asked for again while the sign-in is used.
 */
export class SignIns {
  readonly #options: SignInOptions;
  readonly #store: StateStore;
  readonly #sealKey: Buffer;
  readonly #providers: ReadonlyMap<string, Provider>;
  readonly #recent = new LRUCache<string, Content>({ max: MAX_CACHED });
  readonly #checks = new Map<string, Promise<Content>>();

  private constructor(options: SignInOptions, sealKey: Buffer) {
    this.#options = options;
    this.#store = options.state.store;
    this.#sealKey = sealKey;
    this.#providers = new Map(
      options.settings
        .filter((one): one is LoginIssuer => one.login !== undefined)
        .map((settings) => [settings.prefix, { settings, party: new RelyingParty(settings) }]),
    );
  }

  static async open(options: SignInOptions): Promise<SignIns> {
    return new SignIns(options, Buffer.from(await options.state.sealKey()));
  }

  /** Issuers with sign-in, in the order of the configuration. */
  get providers(): readonly { readonly prefix: string; readonly label: string }[] {
    return Array.from(this.#providers.values(), ({ settings: { prefix, login } }) => ({
      prefix,
      label: login.label,
    }));
  }

  /**
   * Starts a sign-in in a browser.
   *
   * @param request `next` is the own path to which the browser goes afterwards
   * @returns the URL of the provider
   * @throws Refusal `not_found` or `issuer_unreachable`
   */
  async begin(
    prefix: string,
    request: Place & AuthenticationDemand & { readonly next: string },
  ): Promise<string> {
    const { party, settings } = this.#provider(prefix);
    const { redirectUri, next, maxAge } = request;
    const { url, checks } = await party.begin(redirectUri, request).catch((error: unknown) => {
      throw this.#failure(settings, error);
    });
    const { state, ...secrets } = checks;
    await this.#store.put(REQUEST, requestKey(prefix, request, state), {
      payload: JSON.stringify({ next, maxAge, ...secrets }),
      expires: epochSeconds() + REQUEST_SECONDS,
    });
    return url;
  }

  /**
   * Completes a sign-in, once, in the browser and at the redirect URI where it was started.
   *
   * @param query of the redirect
   * @returns `next` and `maxAge` as they were given to `begin`, and who has signed in
   * @throws Refusal `sign_in_expired`, `sign_in_refused` or `issuer_unreachable`, with its issuer
   */
  async finish(
    prefix: string,
    { query, snapshot, ...place }: Place & { readonly query: string; readonly snapshot: Snapshot },
  ) {
    const { party, settings } = this.#provider(prefix);
    const { issuer } = settings;
    const state = new URLSearchParams(query).get("state") ?? "";
    const found = await takeRecord(this.#store, REQUEST, requestKey(prefix, place, state));
    if (found === undefined) throw new Refusal("sign_in_expired", { token: { issuer } });
    const { next, maxAge, ...secrets } = requestShape.parse(JSON.parse(found));
    try {
      const url = new URL(`${place.redirectUri}?${query}`);
      const answer = await party.finish(url, { state, ...secrets });
      const { claims, refreshToken } = answer;
      if (claims === undefined) throw new ProviderRefused("no_id_token");
      await this.#requireSigned(settings, answer);
      const lasts = refreshToken === undefined ? HOUR : lifetimes.grant;
      const groups = await groupsIn(answer, settings);
      const signedIn = await this.open(settings, claims, groups, lasts, refreshToken);
      const user = await this.#admit(snapshot, signedIn, issuer);
      return { next, maxAge, user, signedIn, issuer };
    } catch (error) {
      throw this.#failure(settings, error);
    }
  }

  /**
   * Records a sign-in from verified claims: of an ID token, or of a provider's assertion.
   *
   * @param lasts seconds
   * @throws Refusal `token_invalid` if they name no valid user or lack a required claim
   */
  async open(
    settings: IssuerSettings,
    claims: JWTPayload,
    groups: Groups,
    lasts: number,
    refreshToken?: string,
  ): Promise<SignedIn> {
    const { issuer, prefix, username_claim: usernameClaim } = settings;
    const { user: username, attributes } = readIdentity(claims, settings);
    const { sub: subject = "", sid, auth_time: authTime } = claims;
    const until = epochSeconds() + lasts;
    const key = subjectKey(prefix, usernameClaim, subject);
    const { id, credential } = newSignIn({ until, session: sessionKey(prefix, sid), subject: key });
    // A revocation covers all that was issued up to a second, so a sign-in in it waits.
    const { revocations } = this.#options;
    const seconds = revocations.earliestIssue(subjectRevocation(username, key)) - epochSeconds();
    if (seconds > 0) await delay(Math.min(seconds, MAX_WAIT_SECONDS) * 1000);
    const content: Content = {
      issuer,
      username,
      subject,
      ...groups,
      attributes: writtenAttributes(attributes),
      authTime: typeof authTime === "number" ? authTime : undefined,
      openedAt: epochSeconds(),
      checkedAt: epochSeconds(),
      refreshToken: refreshToken && this.#encrypt(refreshToken, id),
    };
    const user = signedIn(credential, content);
    await this.#write(id, until, content);
    return user;
  }

  /**
   * The user of a sign-in, with groups that are at most `recheck` seconds old.
   *
   * @throws Refusal `token_revoked`, `groups_unavailable` or `issuer_unreachable`
   */
  async current(credential: string, username: string): Promise<SignedIn> {
    const signIn = parseSignIn(credential);
    if (signIn === undefined) throw signedOut();
    const requireOpen = (issuedAt: number) => {
      const isEnded = isSignInEnded(this.#options.revocations, signIn, { username, issuedAt });
      if (isEnded) throw signedOut();
    };
    requireOpen(Number.POSITIVE_INFINITY);
    const { id, until } = signIn;
    let content = this.#recent.get(id);
    if (content === undefined || this.#isDue(content)) {
      const checking =
        this.#checks.get(id) ?? this.#check(id, until).finally(() => this.#checks.delete(id));
      this.#checks.set(id, checking);
      content = await checking;
    }
    requireOpen(content.openedAt);
    if (content.username !== username) throw signedOut();
    return signedIn(credential, content);
  }

  /**
   * Checks on behalf of an open stream, which keeps the rights that it began with. A check that is
   * due begins, and the stream learns of its result at the next call.
   *
   * @throws Refusal `token_revoked` if groups or attributes have changed since, or as `current`
   */
  requireUnchanged({ credential, username, subject }: SignedIn): void {
    const content = this.#recent.get(parseSignIn(credential)?.id ?? "");
    if (content === undefined || this.#isDue(content)) {
      this.current(credential, username).catch(() => {});
    }
    if (content === undefined) return;
    if (isDeepStrictEqual(signedIn(credential, content).subject, subject)) return;
    throw new Refusal("token_revoked", { detail: "groups_changed" });
  }

  /**
   * Ends what a logout token names. Resolves when that is in force everywhere.
   *
   * @throws Refusal `token_invalid` if the token has been used
   */
  async logOut({ id, issuedAt, expiresAt, session, subject }: Logout): Promise<void> {
    const { revocations } = this.#options;
    const key = hashId(id);
    const repeated = () => new Refusal("token_invalid", { detail: "repeated" });
    if ((await this.#store.find(LOGOUT, key)) !== undefined) throw repeated();
    if (session !== "") {
      const longest = Math.max(SESSION_TOKEN_SECONDS, lifetimes.refreshToken);
      const until = epochSeconds() + longest + DAY;
      await revocations.revoke({ jti: sessionRevocation(session), until });
    } else if (subject !== undefined) {
      await revocations.revokeUser(subject);
      // The clock of the provider, which has issued tokens too, may be ahead.
      if (revocations.earliestIssue(subject) <= issuedAt) {
        await revocations.revoke({ user: subject, before: issuedAt + 1 });
      }
    }
    // Only now, so that the provider may send the token again after a failure.
    if (!(await this.#store.claim(LOGOUT, key, expiresAt))) throw repeated();
  }

  /** Forgets a sign-in to which no session or token refers. */
  async forget(credential: string): Promise<void> {
    const signIn = parseSignIn(credential);
    if (signIn === undefined) return;
    this.#recent.delete(signIn.id);
    await this.#store.remove(SIGN_IN, signIn.id);
  }

  /** @throws Refusal `not_found` */
  #provider(prefix: string): Provider {
    const found = this.#providers.get(prefix);
    if (found === undefined) throw new Refusal("not_found");
    return found;
  }

  /** @throws Refusal `sign_in_refused` for a disabled user, whose sign-in ends */
  async #admit(snapshot: Snapshot, signedIn: SignedIn, issuer: string): Promise<User> {
    try {
      const issued = { tokenId: "", issuedAt: Number.POSITIVE_INFINITY };
      return identify(snapshot, this.#options.revocations, { ...signedIn, ...issued });
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      await this.forget(signedIn.credential);
      const message = "The gateway does not admit this user";
      const detail = error.detail ?? error.code;
      throw new Refusal("sign_in_refused", { message, detail, token: { issuer } });
    }
  }

  /** Asks the provider again if that is due, unless another process is doing so. */
  async #check(id: string, until: number): Promise<Content> {
    const content = await this.#read(id);
    const { checkedAt, failedAt, username } = content;
    if (!this.#isDue(content)) return content;
    const provider = this.#providers.get(issuerPrefix(username));
    if (provider === undefined) throw new Refusal("token_revoked", { detail: "unknown_issuer" });
    const silent = new Refusal("issuer_unreachable", { detail: "no answer", retryAfter: 2 });
    const sinceFailure = Math.abs(epochSeconds() - (failedAt ?? 0));
    if (sinceFailure < RETRY_SECONDS) return this.#tolerate(content, silent);
    const turn = await takeTurn(this.#store, `${id} ${checkedAt} ${failedAt ?? 0}`, async () => {
      const now = await this.#read(id);
      const isSame = now.checkedAt === checkedAt && now.failedAt === failedAt;
      return isSame ? undefined : now;
    }).catch((error: unknown) => {
      if (!(error instanceof Refusal) || error.status !== 503) throw error;
      // The provider is not asked, since its next refresh token could not be kept.
      return { isOurs: false, result: this.#tolerate(content, error) } as const;
    });
    if (turn.isOurs) return this.#ask(provider, id, until, content);
    const { result = content } = turn;
    return result.checkedAt === checkedAt ? this.#tolerate(content, silent) : result;
  }

  /** Uses a sign-in for an hour after its provider should have answered. */
  #tolerate(content: Content, refusal: Refusal): Content {
    if (this.#dueAt(content) + HOUR <= epochSeconds()) throw refusal;
    return content;
  }

  async #ask(
    { party, settings }: Provider,
    id: string,
    until: number,
    content: Content,
  ): Promise<Content> {
    const { username, subject, refreshToken = "" } = content;
    let kept = content;
    try {
      const old = this.#decrypt(refreshToken, id);
      const answer = await party.refresh(old, subject);
      const { claims, refreshToken: next = old } = answer;
      // The provider may no longer accept the old one, so the new one is kept even if the rest fails.
      kept = { ...content, refreshToken: this.#encrypt(next, id) };
      await this.#requireSigned(settings, answer);
      const identity = claims && readIdentity(claims, settings);
      if (identity !== undefined && identity.user !== username) {
        throw new ProviderRefused("another_user");
      }
      const checked: Content = {
        ...kept,
        ...(identity && { attributes: writtenAttributes(identity.attributes) }),
        ...(await groupsIn(answer, settings)),
        checkedAt: epochSeconds(),
        failedAt: undefined,
      };
      await this.#write(id, until, checked);
      return checked;
    } catch (error) {
      const refusal = this.#failure(settings, error);
      if (refusal.code !== "sign_in_refused") {
        await this.#write(id, until, { ...kept, failedAt: epochSeconds() });
        return this.#tolerate(content, refusal);
      }
      const { revocations, log } = this.#options;
      this.#recent.delete(id);
      await revocations.revoke({ jti: signInRevocation(id), until });
      await this.#store.remove(SIGN_IN, id);
      const { detail } = refusal;
      log.info({ user: username, detail }, "the provider has ended a sign-in");
      throw new Refusal("token_revoked", { detail: detail ?? "refused" });
    }
  }

  async #requireSigned(settings: IssuerSettings, { idToken }: ProviderAnswer): Promise<void> {
    if (idToken !== undefined) await this.#options.issuers.verifyIdToken(settings, idToken);
  }

  /** The refusal of a sign-in after an error, which is the provider's unless it is a Refusal. */
  #failure({ issuer }: LoginIssuer, error: unknown): Refusal {
    const token = { issuer };
    const known = error instanceof Refusal ? error : undefined;
    if (known?.code === "groups_unavailable") {
      const { code, detail = code, token: about } = known;
      return new Refusal(code, { detail, token: { ...about, ...token } });
    }
    if (known && known.code !== "token_invalid" && known.code !== "issuer_unreachable")
      return known;
    const isAnswer = known === undefined && !(error instanceof ProviderRefused);
    const about = { ...token, cause: isAnswer ? describeProblem(error) : known?.token?.cause };
    const reason = known?.code === "token_invalid" ? known.detail : refusalReason(error);
    if (reason !== undefined) {
      return new Refusal("sign_in_refused", { detail: reason, cause: error, token: about });
    }
    const detail = known?.detail ?? "unreachable";
    this.#options.log.warn({ detail, ...about }, "an identity provider is unreachable");
    return new Refusal("issuer_unreachable", {
      message: PROVIDER_MESSAGE,
      detail,
      cause: error,
      retryAfter: RETRY_SECONDS,
      token: about,
    });
  }

  async #write(id: string, until: number, content: Content): Promise<void> {
    await this.#store.put(SIGN_IN, id, { payload: JSON.stringify(content), expires: until });
    this.#recent.set(id, content);
  }

  async #read(id: string): Promise<Content> {
    const content = await readContent(this.#store, this.#options.settings, id);
    this.#recent.set(id, content);
    return content;
  }

  /** When the provider is asked again, in epoch seconds. At once if the clock was set back. */
  #dueAt({ username, checkedAt, refreshToken }: Content): number {
    if (refreshToken === undefined) return Number.POSITIVE_INFINITY;
    const provider = this.#providers.get(issuerPrefix(username));
    const isSetBack = checkedAt > epochSeconds() + CLOCK_AHEAD_SECONDS;
    return provider === undefined || isSetBack ? 0 : checkedAt + provider.settings.login.recheck;
  }

  #isDue(content: Content): boolean {
    return this.#dueAt(content) <= epochSeconds();
  }

  #encrypt(refreshToken: string, id: string): string {
    return seal(this.#sealKey, Buffer.from(refreshToken), id).toString("base64url");
  }

  #decrypt(refreshToken: string, id: string): string {
    try {
      return unseal(this.#sealKey, Buffer.from(refreshToken, "base64url"), id).toString();
    } catch (cause) {
      throw new ProviderRefused("refresh_key_lost", cause);
    }
  }
}
