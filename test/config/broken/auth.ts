import { type Broken, key, seconds } from "./file.ts";

const failures = "a whole number from 1 to 1000000";
const databaseName = "1 to 63 ASCII letters, digits, _ and -";

/** What was found is cut to 64 characters. */
function shortened({ text, problem }: Broken): Broken {
  return { text, problem: problem.replace(/(?<=found ".{62}).{2,}(?=; allowed)/, "…") };
}

/** What `[auth]` refuses. */
export const auth: Broken[] = [
  ...key("auth", "insecure_allow_remote", "true or false", ["0"]),
  ...key("auth", "refuse_common_passwords", "true or false", ['"some"']),
  ...key("auth", "check_permissions", "true or false", ['"yes"', "1"]),
  ...key("auth", "token_expiration", "a whole number from 1 to 31622400", ["0", "31622401"]),
  ...key("auth", "signing_algorithm", '"ES256", "EdDSA", "RS256", "HS256"', ['"none"', '"es256"']),
  ...key("auth", "argon2_time_cost", "a whole number from 1 to 64", ["0", "65"]),
  ...key("auth", "argon2_parallelism", "a whole number from 1 to 64", ["0", "65"]),
  ...key("auth", "argon2_memory_cost", "a whole number from 8 to 1048576", ["1048577"]),
  {
    text: "[auth]\nargon2_memory_cost = 31\n",
    problem:
      "gateway.toml:2: auth.argon2_memory_cost: found 31; allowed: at least 8 * argon2_parallelism, which is 32",
  },
  ...key("auth", "access_control_file", "a path", ['""', "false"]),
  ...key("auth", "revocations_file", "a path", ['"a\\u0000b"']),
  ...key("auth", "default_database", databaseName, [
    '"*"',
    '"a.b"',
    '""',
    `"${"d".repeat(62)}é"`,
  ]).map(shortened),
  ...key("auth", "issuer", "1 to 255 visible ASCII characters", ['""', '"a b"', '"é"']),
  ...key("auth", "max_failures_per_user_and_address", failures, ["0", "1000001"]),
  ...key("auth", "max_failures_per_address", failures, ["0"]),
  ...key("auth", "failure_window", seconds, ["0"]),
  {
    text: '[server]\nhost = "0.0.0.0"\n[auth]\nenabled = false\n',
    problem:
      'gateway.toml:4: auth.enabled: found false; allowed: true, since other machines can reach server.host "0.0.0.0"; ' +
      'to go without authentication set server.host = "127.0.0.1", or accept the risk with auth.insecure_allow_remote = true',
  },
];
