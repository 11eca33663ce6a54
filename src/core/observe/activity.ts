/** The last login and last allowed request of users and their applications. */

import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import * as z from "zod";
import { epochSeconds } from "../base/clock.ts";
import { replaceFile } from "../base/files/guarded.ts";
import { Turns } from "../base/queues.ts";
import type { Log } from "./log.ts";

const FIRST_WRITE_MS = 5000;
const WRITE_EVERY_MS = 60_000;
export const RETENTION_SECONDS = 400 * 86_400;

/** Epoch seconds; 0 for never. */
export interface LastActivity {
  readonly login: number;
  readonly use: number;
}
const never: LastActivity = { login: 0, use: 0 };

const fileShape = z.record(z.string(), z.tuple([z.int(), z.int()]));

/** Unambiguous, because no username contains a space. */
function activityKey(user: string, client: string | undefined): string {
  return client === undefined ? user : `${user} ${client}`;
}

/** Unambiguous, because no username begins with this character. */
function keyOfToken(tokenId: string): string {
  return `#${tokenId}`;
}

/** An unreadable file counts as empty. */
function readActivityFile(file: string): [key: string, activity: LastActivity][] {
  try {
    const known = Object.entries(fileShape.parse(JSON.parse(readFileSync(file, "utf8"))));
    return known.map(([key, [login, use]]) => [key, { login, use }]);
  } catch {
    return [];
  }
}

type Entries = Iterable<readonly [key: string, activity: LastActivity]>;

export interface ActivityStorage {
  load(): Entries;
  /** The written activity of all processes. */
  readAll(): Promise<Entries>;
  write(known: ReadonlyMap<string, LastActivity>): Promise<void>;
}

export function activityFile(serviceDirectory: string, number: number): ActivityStorage {
  const file = path.join(serviceDirectory, `activity.${number}.json`);
  return {
    load: () => readActivityFile(file),
    readAll: async () => activityFilesIn(serviceDirectory),
    async write(known) {
      const entries = known.entries().map(([key, { login, use }]) => [key, [login, use]]);
      await replaceFile(file, JSON.stringify(Object.fromEntries(entries)));
    },
  };
}

export type ActivityRecorder = ReturnType<typeof createActivityRecorder>;

export function createActivityRecorder(place: ActivityStorage, log: Log) {
  const oldest = epochSeconds() - RETENTION_SECONDS;
  const recent = Array.from(place.load()).filter(
    ([, { login, use }]) => Math.max(login, use) > oldest,
  );
  const known = new Map(recent.map(([key, activity]) => [key, { ...activity }]));
  let timer: NodeJS.Timeout | undefined;
  const writes = new Turns();
  let pause = FIRST_WRITE_MS;
  let hasFailed = false;

  function write(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    pause = WRITE_EVERY_MS;
    return writes.run(async () => {
      try {
        await place.write(known);
        hasFailed = false;
      } catch (error) {
        if (!hasFailed) log.warn({ err: error }, "the last use of users cannot be written");
        hasFailed = true;
      }
    });
  }

  return {
    /** Records an allowed request or login of a user, by an application or an issued token. */
    note(
      user: string,
      client: string | undefined,
      { isLogin, token }: { isLogin: boolean; token?: string | undefined },
    ): void {
      const now = epochSeconds();
      const keys = client === undefined ? [user] : [user, activityKey(user, client)];
      if (token !== undefined) keys.push(keyOfToken(token));
      for (const key of keys) {
        const activity = known.get(key) ?? { login: 0, use: now };
        activity.use = now;
        if (isLogin) activity.login = now;
        known.set(key, activity);
      }
      timer ??= setTimeout(() => void write(), pause).unref();
    },
    /** That of other processes may be up to a minute old. */
    async read(): Promise<KnownActivity> {
      return joinActivity([...(await place.readAll()), ...known]);
    },
    async close(): Promise<void> {
      if (timer !== undefined) await write();
      await writes.end();
    },
  };
}

export type KnownActivity = ReturnType<typeof joinActivity>;

export function joinActivity(entries: Entries) {
  const known = new Map<string, LastActivity>();
  for (const [key, { login, use }] of entries) {
    const before = known.get(key) ?? never;
    known.set(key, { login: Math.max(before.login, login), use: Math.max(before.use, use) });
  }
  return {
    of: (user: string, client?: string): LastActivity =>
      known.get(activityKey(user, client)) ?? never,
    /** The last use of an issued token, 0 for never. */
    useOfToken: (tokenId: string): number => (known.get(keyOfToken(tokenId)) ?? never).use,
  };
}

function activityFilesIn(serviceDirectory: string): Entries {
  let names: string[] = [];
  try {
    names = readdirSync(serviceDirectory);
  } catch {
    // Without the directory, nothing is known.
  }
  const files = names.filter((name) => /^activity\.\d+\.json$/.test(name));
  return files.flatMap((name) => readActivityFile(path.join(serviceDirectory, name)));
}

export function activityIn(serviceDirectory: string): KnownActivity {
  return joinActivity(activityFilesIn(serviceDirectory));
}
