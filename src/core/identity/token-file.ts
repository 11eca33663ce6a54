import path from "node:path";
import * as z from "zod";
import { isAnyUsername, isDatabaseOrEvery } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { epochSeconds, writtenTime } from "../base/clock.ts";
import { runCooperatively, type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import {
  decodeUtf8,
  isThere,
  parseLine,
  readGuardedBytes,
  replaceFile,
  UnsafeFileError,
} from "../base/files/guarded.ts";
import { withLock } from "../base/files/lock.ts";
import { followFiles } from "../base/files/watch.ts";
import { Refusal } from "../base/refusal.ts";
import { identify, isOpaque } from "./authenticate.ts";
import type { Revocations } from "./revocations.ts";
import { type IssuedToken, type LiveTokenInventory, TokenIndex } from "./token.ts";

export function tokenFilePath(serviceDirectory: string): string {
  return path.join(serviceDirectory, "tokens");
}

/** Storage of issued tokens, for example a file (`inventoryIn`). */
export interface TokenInventoryStore {
  read(): Promise<TokenIndex>;
  /** Resolves when the token is stored. Until then, it must not be shown to anyone. */
  add(token: IssuedToken): Promise<void>;
}

/** Letters and digits of any script, `. _ - @ : /` and inner single spaces. */
const namePattern = /^(?=.{1,64}$)[\p{L}\p{N}._@:/-]+(?: [\p{L}\p{N}._@:/-]+)*$/u;
/** A UUID, or the id of an MCP access token. */
const idPattern = /^(?:[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}|[\w-]{43})$/i;

export function isTokenName(text: string): boolean {
  return namePattern.test(text) && !idPattern.test(text) && !isOpaque(text);
}

const seconds = z.int().nonnegative();
const recordShape = z
  .strictObject({
    id: z.string().min(1).max(128),
    name: z.string().optional(),
    user: z.string().refine(isAnyUsername),
    database: z.string().refine(isDatabaseOrEvery),
    issued: seconds,
    expires: seconds,
    cred: z.string(),
    sha256: z
      .string()
      .regex(/^[\w-]{43}$/)
      .optional(),
    key: z.string().optional(),
  })
  .transform(
    ({ id, user, issued, expires, cred, sha256, key, ...token }): IssuedToken => ({
      ...token,
      tokenId: id,
      username: user,
      issuedAt: issued,
      expiresAt: expires,
      credential: cred,
      digest: sha256,
      kid: key,
    }),
  );

/** Reads a record as `writtenToken` writes it. @throws ZodError */
export function readIssuedToken(record: unknown): IssuedToken {
  return recordShape.parse(record);
}

export function writtenToken(token: IssuedToken): object {
  const { tokenId, username, database, issuedAt, expiresAt, credential, name, digest, kid } = token;
  return {
    id: tokenId,
    name,
    user: username,
    database,
    issued: issuedAt,
    expires: expiresAt,
    cred: credential,
    sha256: digest,
    key: kid,
  };
}

function* tokensSteps(file: string, bytes: Buffer): Steps<TokenIndex> {
  const index = new TokenIndex();
  yield* visitEach(decodeUtf8(file, bytes).split("\n"), (line, at) => {
    if (line.trim() === "") return;
    const token = parseLine(recordShape, line);
    // The line is not quoted, because it may be a pasted token.
    if (token === undefined) {
      throw new UnsafeFileError(`${file}:${at + 1}`, "is not an issued token");
    }
    index.add(token);
  });
  return index;
}

async function readTokens(file: string, options: { checkRead: boolean }): Promise<TokenIndex> {
  if (!isThere(file)) return new TokenIndex();
  return runCooperatively(tokensSteps(file, await readGuardedBytes(file, options)));
}

/** Expired tokens are kept for a week, in case the clock is wrong. */
const MARGIN_SECONDS = 7 * 86_400;

/** @param options.checkRead also refuse a file that others can read */
export function inventoryIn(file: string, options: { checkRead: boolean }): TokenInventoryStore {
  return {
    read: () => readTokens(file, options),
    async add(token) {
      await withLock(file, async () => {
        const known = await readTokens(file, { checkRead: false });
        known.add(token);
        const oldest = epochSeconds() - MARGIN_SECONDS;
        const kept = [...known.all()].filter(({ expiresAt }) => expiresAt >= oldest);
        const lines = kept.map((one) => `${JSON.stringify(writtenToken(one))}\n`);
        await replaceFile(file, lines.join(""));
      });
    },
  };
}

/**
 * Follows the file. A token that is not in it any more opens nothing. A broken file changes nothing.
 *
 * @throws UnsafeFileError or the file system's error if the first load fails
 */
export async function openTokenInventory(
  file: string,
  options: { readonly checkRead: boolean; readonly onFailure: (error: unknown) => void },
): Promise<LiveTokenInventory> {
  async function load(): Promise<void> {
    inventory.index = await readTokens(file, options);
  }

  const index = await readTokens(file, options);
  const inventory = { index, ...followFiles([file], load, options.onFailure) };
  return inventory;
}

/** What decides whether an issued token is still accepted. */
interface TokenConditions {
  readonly snapshot: Snapshot;
  readonly revocations: Pick<Revocations, "isRevoked">;
  readonly hasKey: (kid: string) => boolean;
}

/** The tokens that are still accepted, the newest first. */
export function acceptedTokens(
  tokens: Iterable<IssuedToken>,
  { snapshot, revocations, hasKey }: TokenConditions,
): IssuedToken[] {
  const now = epochSeconds();
  const isAccepted = (token: IssuedToken) => {
    if (token.expiresAt <= now || (token.kid !== undefined && !hasKey(token.kid))) return false;
    try {
      identify(snapshot, revocations, token);
      return true;
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) return false;
      throw error;
    }
  };
  return [...tokens]
    .reverse()
    .filter(isAccepted)
    .sort((one, other) => other.issuedAt - one.issuedAt);
}

const EXPIRES_SOON_SECONDS = 14 * 86_400;

export function expiresSoon({ expiresAt }: Pick<IssuedToken, "expiresAt">): boolean {
  return expiresAt <= epochSeconds() + EXPIRES_SOON_SECONDS;
}

/** As `GET /api/tokens` and `gatehouse token list` show it. @param lastUsed 0 for never */
export function viewToken(token: IssuedToken, lastUsed: number) {
  const { tokenId, name, username, database, issuedAt, expiresAt } = token;
  return {
    id: tokenId,
    ...(name === undefined ? {} : { name }),
    user: username,
    database,
    issued: writtenTime(issuedAt * 1000),
    expires: writtenTime(expiresAt * 1000),
    ...(lastUsed === 0 ? {} : { last_used: writtenTime(lastUsed * 1000) }),
  };
}
