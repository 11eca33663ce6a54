/** For each rule of the access file, files that break it, with the line and the reason. */
import { hashWith, SALT } from "./kit.ts";

interface BrokenFile {
  readonly text: string;
  readonly line: number | undefined;
  readonly reason: RegExp;
}

/** Used in names and hashes, and must not appear in a reason. */
export const SECRET = "hunter2";

const record = `[[users]]; username = "${SECRET}"`;
const entry = `[[acl]]; username = "${SECRET}"`;
const readWrite = `${entry}; database = "main"; role = "ReadWrite"`;

/** `LINE; LINE => line: reason` each, in which % stands for each of ` <= VALUE | VALUE`. */
const files = String.raw`
[[users]]; username = "${SECRET} => 2: .
${record}; username = "${SECRET}" => 3: .
${record}; ; [${SECRET}]; a = 1 => 4: ^only \[\[users]], \[\[groups]], \[\[acl]] and \[\[boundaries]]
[[${SECRET}]]; a = 1; ${record} => 1: ^only \[\[users]]
a.${SECRET} = 1; ${record} => 1: ^only \[\[users]]
# one; [users]; username = "${SECRET}" => 2: ^\`users\` must be written as \[\[users]]$
${record}; [acl]; username = "${SECRET}" => 3: ^\`acl\` must be written as \[\[acl]]$
; users = "${SECRET}" => 2: ^\`users\` must be written as
users = ["${SECRET}"] => 1: ^not a table$
acl = [1979-05-27] => 1: ^not a table$
${record}; ${SECRET} = 1 => 3: ^unknown key; allowed: username, email
${record}; Email = "x" => 3: ^unknown key
${entry}; user = 1 => 3: ^unknown key "user"; allowed: username, group, database, role, tables, columns,
${record}; ; [users.${SECRET}]; a = 1 => 4: ^unknown key
${record}; __proto__ = { disabled = true } => 3: ^unknown key
${record}; tokens_valid_after = 9007199254740993 => 3: .
[[users]]; email = "${SECRET}" => 1: ^\`username\` must be 1 to 64 of letters
[[users]]; username = % => 2: ^\`username\` must be 1 to 64 of letters <= 1 | "" | "." | ".." | "a b" | "${SECRET}!" | "a/b" | "é" | "${"a".repeat(65)}" | "a\u0000" | "a\n" | ":a" | "p:" | "p.q:a" | "group:a" | "${"p".repeat(64)}:a" | "p:${"a".repeat(201)}" | "p: a" | "p:a " | "p:a  b" | "p:a*" | "p:a\n"
[[users]]; username = "p:e\u0301" => 2: in NFC$
[[groups]]; name = %; members = [] => 2: ^\`name\` must be 1 to 63 ASCII letters <= 1 | "" | "a b" | "p:a" | "é"
[[groups]]; members = [] => 1: ^\`name\` must be .*; it is missing$
[[groups]]; name = "a"; members = % => 3: ^\`members\` must be a list of usernames, each once$ <= "a" | [1] | ["a", "a"] | ["group:a"] | ["${SECRET}!"]
[[groups]]; name = "a" => 1: ^\`members\` must be .*; it is missing$
${record}; ; [[groups]]; name = "a"; members = []; ; [[groups]]; name = "a"; members = ["b"] => 9: ^this group already has a record$
${entry}; group = "a"; database = "main"; role = "Owner" => 3: ^either \`username\` or \`group\` is allowed, not both$
[[acl]]; group = %; database = "main"; role = "Owner" => 2: ^\`group\` must be a local group's name <= 1 | "" | "a b" | "group:a" | "p:" | "${SECRET}!"
[[acl]]; group = "a"; database = "main"; role = "Owner"; ; [[acl]]; group = "a"; database = "main"; role = "None" => 6: ^this group already has an entry for this database$
[[boundaries]]; via = "mcp"; username = "a"; group = "b"; role = "None" => 4: ^either \`username\` or \`group\` is allowed, not both$
[[boundaries]]; via = "mcp"; group = "a!"; role = "None" => 3: ^\`group\` must be the name of a group$
${record}; email = % => 3: ^\`email\` must be a string of 1 to 254 printable characters$ <= 1 | "" | "${"a".repeat(255)}" | """${SECRET}; b"""
${record}; email.of = "x" => 3: ^\`email\` must be a string of 1 to 254 printable characters$
${record}; disabled = "yes" => 3: ^\`disabled\` must be true or false$
${record}; disabled = 1 => 3: ^\`disabled\` must be true
${record}; tokens_valid_after = % => 3: ^\`tokens_valid_after\` must be a whole number of epoch seconds$ <= -1 | 1.5 | inf | nan | 1763700000000 | "1763700000" | 1979-05-27T07:32:00Z | true
${record}; same_as = % => 3: ^\`same_as\` must be the name of another user <= 1 | "" | "a b" | "group:a" | "p:" | ["b"] | "${SECRET}!"
[[users]]; username = "a"; same_as = "a" => 3: ^\`same_as\` must be the name of another user, or of
[[users]]; username = "a"; password_hash = "${hashWith()}"; ; [[users]]; username = "b"; password_hash = "${hashWith()}"; ; [[users]]; username = 'a' => 10: ^this user already has a record$
[[acl]]; database = "a"; role = "Owner" => 1: ^\`username\` or \`group\` is required
[[acl]]; username = "*"; database = "main"; role = "Owner" => 2: ^\`username\` must be 1 to 64 of letters
${entry}; role = "Owner" => 1: ^\`database\` must be "\*" or 1 to 63
${entry}; database = "%"; role = "Owner" => 3: ^\`database\` must be "\*" or 1 to 63 <=  | ** | a b | a.b.c | a. | .a | a..b | a.* | a/b | ${SECRET}% | é | ${"a".repeat(64)} | main\u0000
${entry}; database = ["main"]; role = "Owner" => 3: ^\`database\` must be "\*" or 1 to 63
${entry}; database = "main" => 1: ^\`role\` must be one of .*; it is missing$
${entry}; database = "main"; role = "%" => 4: ^\`role\` must be one of Owner, DbAdmin, ReadWrite, ReadOnly, None(?: \(did you mean \w+\?\))?$ <=  | ${SECRET} | owner | OWNER |  Owner | ReadWrite  | Admin
${entry}; database = "main"; role = ["Owner"] => 4: ^\`role\` must be one of Owner, DbAdmin, ReadWrite, ReadOnly, None(?: \(did you mean \w+\?\))?$
${entry}; database = "main"; role = "Owner"; ; ${entry}; database = "main"; role = "ReadOnly" => 6: ^this user already has an entry for this database$
${entry}; database = "*"; role = "ReadOnly"; ; ${entry}; database = "*"; role = "ReadOnly" => 6: ^this user already has an entry for this database$
${entry}; database = "main"; role = "ReadWritee" => 4: None \(did you mean ReadWrite\?\)$
${entry}; database = "main"; role = "owner" => 4:  \(did you mean Owner\?\)$
${entry}; databse = "main" => 3: expires \(did you mean database\?\)$
${record}; ; [[user]]; username = "${SECRET}" => 4:  \(did you mean users\?\)$
[[acl]]; username = "a"; database = "${SECRET}"; role = "Owner"; ; [[acl]]; username = "b"; database = "${SECRET.toUpperCase()}"; role = "Owner" => 8: ^another entry names a database that differs from this one only by case$
${readWrite}; tables = % => 5: ^\`tables\` must be a list of one or more tables, each once: <= [] | "a" | [1] | ["a", "a"]
${readWrite}; tables = % => 5: ^\`tables\` must be <= ["*"] | ["a*b"] | [".b"] | ["${SECRET}!"]
${readWrite}; columns = % => 5: ^\`columns\` must be a list of one or more columns, each once: names .* without \* <= [] | ["*"] | ["a.b"] | ["a", "a"] | true
${readWrite}; writable_columns = % => 5: ^\`writable_columns\` must be a list of columns, each once: <= ["*"] | "a" | ["a", "a"]
${readWrite}; require_where = % => 5: ^\`require_where\` must be a list of one or more columns <= [] | ["a\u0000"]
${readWrite}; row_filter = % => 5: ^\`row_filter\` must be a list of \{ column, cmp, value } <= [] | {} | [{  }] | [{ column = "a", cmp = "=" }] | [{ cmp = "=", value = 1 }] | [{ column = "a", cmp = "LIKE", value = "b" }] | [{ column = "a", cmp = "=", value = 1.5 }] | [{ column = "a", cmp = "=", value = -0.0 }] | [{ column = "a", cmp = "<", value = -0.0 }] | [{ column = "a", cmp = "=", value = [1] }] | [{ column = "a", cmp = "=", value = "@" }] | [{ column = "a", cmp = "=", value = "@a b" }] | [{ column = "a", cmp = "IN", value = 1 }] | [{ column = "a", cmp = "IN", value = ["@a"] }] | [{ column = "a", cmp = "<", value = "b" }] | [{ column = "a", cmp = "=", value = 1, x = 1 }]
${readWrite}; max_rows = % => 5: ^\`max_rows\` must be a whole number from 1$ <= 0 | -1 | 1.5 | "1"
${readWrite}; max_changes = % => 5: ^\`max_changes\` must be a whole number <= 0 | 9007199254740993
${readWrite}; require_approval = % => 5: ^\`require_approval\` must be a list of one or more rights, each once: SELECT, <= [] | ["GRANT"] | ["DELETE", "DELETE"]
${readWrite}; approvers = % => 5: ^\`approvers\` must be a list of one or more usernames and groups, each once, such as "group:analysts"$ <= [] | ["a b"] | ["group:a b"]
${readWrite}; expires = % => 5: ^\`expires\` must be a time with its offset, such as <= 1 | 2026-12-24 | 2026-12-24T18:00:00 | "tomorrow"
${entry}; database = "main"; role = "Owner"; tables = ["a"] => 5: ^\`tables\` is allowed only with the role ReadWrite or ReadOnly or None$
${entry}; database = "main"; role = "None"; columns = ["a"] => 5: ^\`columns\` is allowed only with the role
${entry}; database = "main"; role = "DbAdmin"; max_rows = 1 => 5: ^\`max_rows\` is allowed only with
${readWrite}; tables = ["a", "b"]; ${readWrite}; tables = ["b"] => 6: ^this user already has an entry for one of these tables$
${readWrite}; tables = ["ab*"]; ${readWrite}; tables = ["a*"] => 6: ^two patterns of this user match the same tables of this database$
${record}; attributes = % => 3: ^\`attributes\` must be names \(letters <= 1 | { username = 'a' } | { a = 1.5 } | { a = [1, 'b'] } | { 'a b' = 1 }
${record}; [users.attributes]; a = 1979-05-27 => 3: ^\`attributes\` must be names \(letters
${record}; [[boundaries]]; role = "ReadOnly" => 3: ^\`via\` must be
${record}; [[boundaries]]; via = "ftp" => 4: ^\`via\` must be "mcp" or "query"$
${record}; [[boundaries]]; via = "mcp" => 3: ^the boundary limits nothing; one of role, max_rows
${record}; [[boundaries]]; via = "mcp"; rate_limit = "%" => 5: ^\`rate_limit\` must be <= 60 | 0/s | 1/week | 1.5/s
${record}; [[boundaries]]; via = "mcp"; database = "*" => 5: ^\`database\` must be a database$
[[acl]]; username = "a"; database = "${SECRET}"; role = "Owner"; ; [[boundaries]]; via = "mcp"; role = "ReadOnly"; database = "${SECRET.toUpperCase()}" => 9: differs from this one only by case$
`;

const hashes = [
  "",
  SECRET,
  "$2b$12$abcdefghijklmnopqrstuv",
  `$argon2i$v=19$m=64,t=1,p=1$${SALT}$${SALT}`,
  `$argon2d$v=19$m=64,t=1,p=1$${SALT}$${SALT}`,
  `$argon2id$m=64,t=1,p=1$${SALT}$${SALT}`,
  `$argon2id$v=16$m=64,t=1,p=1$${SALT}$${SALT}`,
  `$argon2id$v=19$m=64,t=1,p=1$${SALT}`,
  `$argon2id$v=19$m=64,t=1,p=1$c2FsdA$${SALT}`,
  `$argon2id$v=19$m=64,t=1,p=1$${SALT}$c2FsdA`,
  `${hashWith()} `,
  ` ${hashWith()}`,
  `${hashWith()}\\n`,
  `${hashWith()}${"A".repeat(512)}`,
  ...["m=64,t=1", "m=64,t=1,p=1,p=1", "m=64,m=64,p=1", "m=64,t=1,x=1", "t=1,p=1"].map(hashWith),
  ...["m=7,t=1,p=1", "m=1048577,t=1,p=1", "m=64,t=0,p=1", "m=64,t=65,p=1"].map(hashWith),
  ...["m=1024,t=1,p=0", "m=1024,t=1,p=65", "m=8,t=1,p=2", "m=-64,t=1,p=1"].map(hashWith),
  ...["m=64.5,t=1,p=1", "m=1e3,t=1,p=1", "m=99999999,t=1,p=1", "m= 64,t=1,p=1"].map(hashWith),
];

const nothing = /contains no user and no grant/;

export const brokenFiles: readonly BrokenFile[] = [
  ...["", " \n\r\n\t\n", `# ${SECRET}\n# [[users]]\n`, "users = []\nacl = []\n"].map((text) => ({
    text,
    line: undefined,
    reason: nothing,
  })),
  { text: `[[users]]\nusername = "${SECRET}"\npassword_ha`, line: 3, reason: /./ },
  { text: `[[users]]\nusername = "${SECRET}"\n\n[[ac`, line: 4, reason: /./ },
  ...["1", ...hashes.map((hash) => `"${hash}"`)].map((hash) => ({
    text: `[[users]]\nusername = "${SECRET}"\npassword_hash = ${hash}\n`,
    line: 3,
    reason: /^`password_hash` is not an Argon2id hash with costs m 8 to 1048576/,
  })),
  ...files
    .slice(1, -1)
    .split("\n")
    .flatMap((row) => {
      const [, lines = "", line, reason = "", values = ""] =
        /^(.*?) => (\d+): (.*?)(?: <= (.*))?$/.exec(row) ?? [];
      return values.split(" | ").map((value) => ({
        text: `${lines.replace("%", value).split("; ").join("\n")}\n`,
        line: Number(line),
        reason: new RegExp(reason),
      }));
    }),
];
