import { z } from "zod";
import { plainNameRule, wholePlainName } from "../../query/names.ts";
import { filePath, flag, refuse, seconds, text, wholeNumber } from "../kinds.ts";

/** How long the longest token lives: 366 days. */
export const LONGEST_TOKEN_SECONDS = 31_622_400;
/** Argon2 needs this many KiB for every lane (RFC 9106, section 3.1). */
const KIB_PER_LANE = 8;

const databaseName = text(plainNameRule, wholePlainName);
const issuer = text("1 to 255 visible ASCII characters", /^[!-~]{1,255}$/);

/** The default names of the files that live in the service directory. */
export const serviceFiles = {
  access_control_file: "access_control.toml",
  revocations_file: "revocations",
} as const;

/** `[auth]`: tokens, passwords, and the files that decide who may do what. */
export const auth = z
  .strictObject({
    enabled: flag(true, "Whether callers need a token; false lets everybody query what they like."),
    insecure_allow_remote: flag(
      false,
      "Whether enabled = false is accepted on a host that other machines can reach.",
    ),
    check_permissions: flag(true, "Whether secret files that others may read stop the start."),
    token_expiration: wholeNumber(1, LONGEST_TOKEN_SECONDS)
      .default(86_400)
      .describe("Lifetime of a login token, in seconds."),
    signing_algorithm: z
      .enum(["ES256", "EdDSA", "RS256", "HS256"])
      .default("ES256")
      .describe("Algorithm that new signing keys are made for."),
    argon2_memory_cost: wholeNumber(KIB_PER_LANE, 1_048_576)
      .default(65_536)
      .describe("Memory of one password hash, in KiB; at least 8 for each of argon2_parallelism."),
    argon2_time_cost: wholeNumber(1, 64).default(3).describe("Passes over that memory."),
    argon2_parallelism: wholeNumber(1, 64).default(4).describe("Lanes of one password hash."),
    refuse_common_passwords: flag(
      false,
      "Whether a new password that stands on a list of common ones is refused.",
    ),
    access_control_file: filePath()
      .default(serviceFiles.access_control_file)
      .describe("Users and grants; the bare default name is in the service directory."),
    revocations_file: filePath()
      .default(serviceFiles.revocations_file)
      .describe("Revoked tokens; the bare default name is in the service directory."),
    default_database: databaseName
      .default("main")
      .describe("Database that a new user gets its role on if none is named."),
    issuer: issuer.default("gatehouse").describe("The iss claim of login tokens."),
    max_failures_per_user_and_address: wholeNumber(1, 1_000_000).default(10).meta({
      description: "Failed logins of one user from one address in failure_window; then 429.",
      live: true,
    }),
    max_failures_per_address: wholeNumber(1, 1_000_000).default(100).meta({
      description: "Failed logins from one address in failure_window; then 429.",
      live: true,
    }),
    failure_window: seconds()
      .default(900)
      .meta({ description: "Seconds over which failed logins are counted.", live: true }),
  })
  .superRefine((auth, context) => {
    const least = KIB_PER_LANE * auth.argon2_parallelism;
    if (auth.argon2_memory_cost >= least) return;
    refuse(context, ["argon2_memory_cost"], `at least 8 * argon2_parallelism, which is ${least}`);
  })
  .prefault({})
  .describe("Tokens, passwords, and the files that decide who may do what.");
