import type { z } from "zod";
import { isHeaderValue } from "../headers.ts";
import { filePath, refuse, text } from "../kinds.ts";

/** The keys of the gateway's own credential for a server behind it: a value, or a file of it. */
export function credentialKeys(owner: string, exampleFile: string) {
  return {
    authorization: text("a header value of visible ASCII characters", isHeaderValue)
      .optional()
      .meta({
        description: `${owner} own credential, sent as its Authorization header.`,
        examples: ["Bearer ..."],
        writeOnly: true,
      }),
    authorization_file: filePath()
      .optional()
      .meta({
        description:
          "A file that holds that credential, instead of authorization; others may not read it.",
        examples: [exampleFile],
      }),
  };
}

interface Credential {
  readonly authorization?: string | undefined;
  readonly authorization_file?: string | undefined;
}

/** A credential has one place: which of two is meant, nobody could tell. */
export function refuseTwoCredentials(
  { authorization, authorization_file: file }: Credential,
  context: z.core.$RefinementCtx,
): void {
  if (authorization === undefined || file === undefined) return;
  refuse(context, ["authorization_file"], "either authorization or authorization_file, not both");
}
