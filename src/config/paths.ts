import { dirname, resolve } from "node:path";
import type { z } from "zod";
import type { configurationSchema } from "./schema.ts";
import { serviceFiles } from "./sections/auth.ts";
import { sqliteDirectory, unixSocketPath, unixSocketUrl } from "./urls.ts";

/**
 * Makes every path of a configuration absolute: relative ones belong to the directory of the
 * file, but the two files of `[auth]` under their bare default names to the service directory.
 * @param file the configuration file, absolute; undefined if there is none
 */
export function resolvePaths(
  configuration: z.output<typeof configurationSchema>,
  file: string | undefined,
  serviceDirectory: string,
): void {
  const { server, auth, upstream, audit, mcp } = configuration;
  const base = file === undefined ? serviceDirectory : dirname(file);
  for (const key of ["access_control_file", "revocations_file"] as const) {
    const home = auth[key] === serviceFiles[key] ? serviceDirectory : base;
    auth[key] = resolve(home, auth[key]);
  }
  for (const section of [upstream, mcp]) {
    const { authorization_file: credential } = section;
    if (credential !== undefined) section.authorization_file = resolve(base, credential);
  }
  for (const key of ["certificate", "key"] as const) {
    const { [key]: path } = server.tls;
    if (path !== undefined) server.tls[key] = resolve(base, path);
  }
  if (audit.file !== undefined) audit.file = resolve(base, audit.file);
  for (const where of [upstream, ...upstream.databases]) {
    if (where.url !== undefined) where.url = resolveUrl(base, where.url);
    if (where.urls !== undefined) where.urls = where.urls.map((url) => resolveUrl(base, url));
  }
}

function resolveUrl(base: string, url: string): string {
  const socket = unixSocketPath(url);
  if (socket !== undefined) return unixSocketUrl(resolve(base, socket));
  const directory = sqliteDirectory(url);
  return directory === undefined ? url : `sqlite:${resolve(base, directory)}`;
}
