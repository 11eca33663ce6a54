import { runCooperatively } from "../cooperative-scheduling.ts";
import { watchFile } from "../files/watch.ts";
import { Refusal } from "../refusal.ts";
import { addRevocations, missingSteps, readRevocations } from "./revocation-lines.ts";
import {
  indexSteps,
  type LiveRevocations,
  type Revocation,
  type RevocationStore,
  type Revocations,
  revocationOfUser,
} from "./revocations.ts";

function failed(detail: string, cause: unknown): Refusal {
  return new Refusal("revocation_failed", { detail, cause });
}

/** Adds revocations to the file. @throws Refusal `revocation_failed`: then nothing was revoked */
async function revoke(file: string, ...revocations: readonly Revocation[]): Promise<void> {
  try {
    await addRevocations(file, revocations);
  } catch (cause) {
    throw failed(cause instanceof Error ? cause.message : "unknown", cause);
  }
}

/**
 * The revocations of a file, for whoever does not follow them, such as a command.
 *
 * @param options.checkRead also refuse to read a file that others may read
 */
export function revocationsIn(file: string, options: { checkRead: boolean }): RevocationStore {
  async function read({ checkRead }: typeof options) {
    const revocations = await readRevocations(file, { checkRead });
    const index = await runCooperatively(indexSteps(revocations));
    return Object.assign(index, { count: revocations.length });
  }

  async function knownToChange(): Promise<Revocations> {
    try {
      return await read({ checkRead: false });
    } catch (cause) {
      throw failed(`${file} cannot be read`, cause);
    }
  }

  return {
    read: () => read(options),
    revokeToken: ({ tokenId, expiresAt }) => revoke(file, { jti: tokenId, until: expiresAt }),
    async revokeUser(user, before) {
      if (before !== undefined) return revoke(file, { user, before });
      return revoke(file, revocationOfUser(await knownToChange(), user));
    },
  };
}

interface RevocationOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
  /** Told when the file cannot be used, or what it lacks cannot be written back. */
  readonly onFailure: (error: unknown) => void;
  /** Told how many revocations the file has lost, before they are written back. */
  readonly onLost: (count: number) => void;
  /** Has the other processes read what was just added; done once they have. */
  readonly tellOthers?: () => Promise<void>;
}

/**
 * Loads the revocations, and reloads them when the file changes. Whatever happens to the file later,
 * what was in force stays so: one that cannot be used changes nothing, and to one that holds less
 * than before, such as an older copy, what it lacks is written back.
 *
 * @throws RevocationFileError, UnsafeFileError or the file system's error if the first load fails
 */
export async function openRevocations(
  file: string,
  options: RevocationOptions,
): Promise<LiveRevocations> {
  let inForce = await readRevocations(file, options);
  let index = await runCooperatively(indexSteps(inForce));
  let lost: readonly Revocation[] = [];
  let stale = false;
  let failure: string | undefined;
  let reloading: Promise<void> = Promise.resolve();

  /** Puts in force what the file holds, besides what was in force. */
  async function join(): Promise<void> {
    watch.note();
    const read = await readRevocations(file, options);
    const missing = await runCooperatively(missingSteps(read, inForce));
    const all = [...missing, ...read];
    index = await runCooperatively(indexSteps(all));
    [inForce, lost] = [all, missing];
  }

  async function reloadNow(): Promise<void> {
    try {
      await join();
      if (lost.length > 0) {
        options.onLost(lost.length);
        await addRevocations(file, lost);
        await join();
      }
      stale = lost.length > 0;
      failure = undefined;
    } catch (error) {
      stale = true;
      failure = error instanceof Error ? error.message : "unknown";
      options.onFailure(error);
    }
  }

  function reload(): Promise<void> {
    reloading = reloading.then(reloadNow);
    return reloading;
  }

  async function add(revocation: Revocation): Promise<void> {
    await revoke(file, revocation, ...lost);
    await Promise.all([reload(), options.tellOthers?.()]);
  }

  const watch = watchFile(file, reload);
  return {
    isRevoked: (token) => index.isRevoked(token),
    earliestIssue: (username) => index.earliestIssue(username),
    get users() {
      return index.users;
    },
    get stale() {
      return stale;
    },
    get failure() {
      return failure;
    },
    revokeToken: ({ tokenId, expiresAt }) => add({ jti: tokenId, until: expiresAt }),
    revokeUser: (user, before) =>
      add(before === undefined ? revocationOfUser(index, user) : { user, before }),
    reload,
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
