import { errorMessage } from "../base/client-error.ts";
import { followFiles } from "../base/files/watch.ts";
import { readCredential } from "../config/resolve.ts";
import type { Configuration } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";

/** The gateway's own credential for an upstream: a request header and its value. */
export interface UpstreamCredential {
  /** In lower case. */
  readonly header: string;
  readonly value: string;
}

/** The credential as configured, and as its file is now. @throws Error if the file cannot be used */
export function readUpstreamCredential(
  configuration: Configuration,
): UpstreamCredential | undefined {
  const { authorization, credential } = configuration.upstream;
  if (authorization !== undefined) return { header: "authorization", value: authorization };
  if (credential === undefined) return undefined;
  const { header, file } = credential;
  return {
    header: header.toLowerCase(),
    value: readCredential(file, configuration.auth.check_permissions),
  };
}

/**
 * As `readUpstreamCredential`, but a file of `upstream.credential` is read again whenever it
 * changes. One that cannot be used leaves the last good value in force. The stack stops the watch.
 */
export function openUpstreamCredential(
  configuration: Configuration,
  log: Log,
  opened: AsyncDisposableStack,
): UpstreamCredential | undefined {
  const { credential } = configuration.upstream;
  if (credential === undefined) return readUpstreamCredential(configuration);
  const { header, file } = credential;
  const read = () => readCredential(file, configuration.auth.check_permissions);
  const load = () => {
    value = read();
    log.info({ file }, "the credential for the upstream was read again");
  };
  const following = followFiles([file], load, (error) => {
    const reason = errorMessage(error);
    log.error({ file, reason }, "the credential was refused: the last good one stays in force");
  });
  opened.defer(() => following.close());
  let value = read();
  return {
    header: header.toLowerCase(),
    get value() {
      return value;
    },
  };
}
