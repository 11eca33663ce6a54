/** For each rule of the access file, files that break it, with the line and the reason. */
import { grant, hashWith, SALT, user } from "./kit.ts";

export interface BrokenFile {
  readonly rule: string;
  readonly text: string;
  readonly line: number | undefined;
  readonly reason: RegExp;
}

/** Stands in names and hashes, and must never be in a reason. */
export const SECRET = "hunter2";

const name = `username = "${SECRET}"`;
const record = `[[users]]\n${name}\n`;
const entry = `[[acl]]\n${name}\n`;
const hashReason = /^`password_hash` is not an Argon2id hash with costs m 8 to 1048576/;
const nameReason = /^`username` must be 1 to 64 of letters/;
const databaseReason = /^`database` must be "\*" or 1 to 63/;
const roleReason =
  /^`role` must be one of Owner, DbAdmin, ReadWrite, ReadOnly, None(?: \(did you mean \w+\?\))?$/;
const emailReason = /^`email` must be a string of 1 to 254 printable characters$/;
const afterReason = /^`tokens_valid_after` must be a whole number of epoch seconds$/;

function broken(rule: string, text: string, line: number | undefined, reason: RegExp): BrokenFile {
  return { rule, text, line, reason };
}

function narrowed(line: string, role = "ReadWrite"): string {
  return `${grant(SECRET, "main", role).trimEnd()}\n${line}\n`;
}

function badKeys(key: string, reason: RegExp, ...values: string[]): BrokenFile[] {
  return values.map((value) =>
    broken(`${key} = ${value}`, narrowed(`${key} = ${value}`), 5, reason),
  );
}

const filter = (condition: string) => `[{ ${condition} }]`;

/** Entries that say more than a role, wrongly. */
const entries = [
  ...badKeys("tables", /^`tables` must be a list of tables/, "[]", '"a"', "[1]", '["a", "a"]'),
  ...badKeys("tables", /^`tables` must be/, '["*"]', '["a*b"]', '["a.b"]', `["${SECRET}!"]`),
  ...badKeys(
    "columns",
    /^`columns` must be a list/,
    "[]",
    '["*"]',
    '["a.b"]',
    '["a", "a"]',
    "true",
  ),
  ...badKeys("writable_columns", /^`writable_columns` must be a list/, '["*"]', '"a"'),
  ...badKeys("require_where", /^`require_where` must be a list of columns/, "[]", '["a\\u0000"]'),
  ...badKeys(
    "row_filter",
    /^`row_filter` must be a list of \{ column, cmp, value }/,
    ...["[]", "{}", filter(""), filter('column = "a", cmp = "="'), filter('cmp = "=", value = 1')],
    filter('column = "a", cmp = "LIKE", value = "b"'),
    filter('column = "a", cmp = "=", value = 1.5'),
    filter('column = "a", cmp = "=", value = [1]'),
    filter('column = "a", cmp = "=", value = "@"'),
    filter('column = "a", cmp = "=", value = "@a b"'),
    filter('column = "a", cmp = "IN", value = 1'),
    filter('column = "a", cmp = "IN", value = ["@a"]'),
    filter('column = "a", cmp = "<", value = "b"'),
    filter('column = "a", cmp = "=", value = 1, x = 1'),
  ),
  ...badKeys("max_rows", /^`max_rows` must be a whole number from 1$/, "0", "-1", "1.5", '"1"'),
  ...badKeys("max_changes", /^`max_changes` must be a whole number/, "0", "9007199254740993"),
  ...badKeys("require_approval", /^`require_approval` must be a list of SELECT/, "[]", '["GRANT"]'),
  ...badKeys("approvers", /^`approvers` must be a list of usernames$/, "[]", '["a b"]'),
  ...badKeys(
    "expires",
    /^`expires` must be a time with its offset, such as/,
    ...["1", "2026-12-24", "2026-12-24T18:00:00", '"tomorrow"'],
  ),
  broken(
    "tables for an Owner",
    narrowed('tables = ["a"]', "Owner"),
    5,
    /^`tables` goes with the role ReadWrite or ReadOnly or None alone$/,
  ),
  broken(
    "columns for nothing",
    narrowed('columns = ["a"]', "None"),
    5,
    /^`columns` goes with the role/,
  ),
  broken("a limit of a DbAdmin", narrowed("max_rows = 1", "DbAdmin"), 5, /^`max_rows` goes with/),
  broken(
    "a table twice",
    narrowed('tables = ["a", "b"]') + narrowed('tables = ["b"]'),
    6,
    /^this user has an entry for one of these tables already$/,
  ),
  broken(
    "two patterns that fit",
    narrowed('tables = ["ab*"]') + narrowed('tables = ["a*"]'),
    6,
    /^two patterns of this user fit the same tables of this database$/,
  ),
];

const attributesReason = /^`attributes` must be names \(letters/;
const boundary = '[[boundaries]]\nvia = "mcp"\n';
const others = [
  ...["1", "{ username = 'a' }", "{ a = 1.5 }", "{ a = [1, 'b'] }", "{ 'a b' = 1 }"].map((odd) =>
    broken(`attributes ${odd}`, `${record}attributes = ${odd}\n`, 3, attributesReason),
  ),
  broken(
    "attributes of a time",
    `${record}[users.attributes]\na = 1979-05-27\n`,
    3,
    attributesReason,
  ),
  broken(
    "a boundary without via",
    `${record}[[boundaries]]\nrole = "ReadOnly"\n`,
    3,
    /^`via` must be/,
  ),
  broken(
    "another via",
    `${record}[[boundaries]]\nvia = "ftp"\n`,
    4,
    /^`via` must be "mcp" or "query"$/,
  ),
  broken(
    "a boundary of nothing",
    record + boundary,
    3,
    /^nothing is bounded; one of role, max_rows/,
  ),
  ...["60", "0/s", "1/week", "1.5/s"].map((odd) =>
    broken(
      `a rate of ${odd}`,
      `${record}${boundary}rate_limit = "${odd}"\n`,
      5,
      /^`rate_limit` must be/,
    ),
  ),
  broken(
    "a boundary of *",
    `${record}${boundary}database = "*"\n`,
    5,
    /^`database` must be a database$/,
  ),
  broken(
    "a boundary's database in another case",
    `${grant("a", SECRET, "Owner")}${boundary}role = "ReadOnly"\ndatabase = "${SECRET.toUpperCase()}"\n`,
    9,
    /differs from this one only by case$/,
  ),
];

function hashes(...written: string[]): BrokenFile[] {
  return written.map((hash) => {
    const shown = hash.length > 60 ? `${hash.slice(0, 60)}...` : hash;
    return broken(`a hash ${shown}`, `${record}password_hash = "${hash}"\n`, 3, hashReason);
  });
}

const shapes = [
  broken("an empty file", "", undefined, /holds no user and no grant/),
  broken("blank lines alone", " \n\r\n\t\n", undefined, /holds no user and no grant/),
  broken("comments alone", `# ${SECRET}\n# [[users]]\n`, undefined, /holds no user and no grant/),
  broken("empty arrays", "users = []\nacl = []\n", undefined, /holds no user and no grant/),
  broken("a half-written table", `${record}password_ha`, 3, /./),
  broken("an unclosed string", `[[users]]\nusername = "${SECRET}\n`, 2, /./),
  broken("a half header", `${record}\n[[ac`, 4, /./),
  broken("a key twice", `${record}${name}\n`, 3, /./),
  broken(
    "an unknown table",
    `${record}\n[${SECRET}]\na = 1\n`,
    4,
    /^only \[\[users]], \[\[acl]] and \[\[boundaries]]/,
  ),
  broken("an unknown array", `[[${SECRET}]]\na = 1\n${record}`, 1, /^only \[\[users]]/),
  broken("an unknown key at the top", `a.${SECRET} = 1\n${record}`, 1, /^only \[\[users]]/),
  broken(
    "one user table",
    `# one\n[users]\n${name}\n`,
    2,
    /^`users` must be written as \[\[users]]$/,
  ),
  broken("one acl table", `${record}[acl]\n${name}\n`, 3, /^`acl` must be written as \[\[acl]]$/),
  broken("users as a string", `\nusers = "${SECRET}"\n`, 2, /^`users` must be written as/),
  broken("an array of strings", `users = ["${SECRET}"]\n`, 1, /^not a table$/),
  broken("an array of dates", "acl = [1979-05-27]\n", 1, /^not a table$/),
  broken("an unknown key", `${record}${SECRET} = 1\n`, 3, /^unknown key; allowed: username, email/),
  broken("a key in another case", `${record}Email = "x"\n`, 3, /^unknown key/),
  broken(
    "an unknown key of a grant",
    `${entry}user = 1\n`,
    3,
    /^unknown key; allowed: username, database, role, tables, columns, /,
  ),
  broken("a table inside a record", `${record}\n[users.${SECRET}]\na = 1\n`, 4, /^unknown key/),
  broken("a prototype as a key", `${record}__proto__ = { disabled = true }\n`, 3, /^unknown key/),
  broken("an integer past 2^53", `${record}tokens_valid_after = 9007199254740993\n`, 3, /./),
];

const users = [
  broken("no username", `[[users]]\nemail = "${SECRET}"\n`, 1, nameReason),
  broken("a number for a username", "[[users]]\nusername = 1\n", 2, nameReason),
  ...[
    "",
    ".",
    "..",
    "a b",
    `${SECRET}!`,
    "a/b",
    "é",
    "a".repeat(65),
    "a\\u0000",
    "a\\n",
    ":a",
    "p:",
  ]
    .concat("p:..", "p:q:r", "p.q:a", `${"p".repeat(64)}:a`)
    .map((odd) => broken(`the username ${odd}`, `[[users]]\nusername = "${odd}"\n`, 2, nameReason)),
  broken("a number for an email", `${record}email = 1\n`, 3, emailReason),
  broken("an empty email", `${record}email = ""\n`, 3, emailReason),
  broken("an email past 254", `${record}email = "${"a".repeat(255)}"\n`, 3, emailReason),
  broken("an email of two lines", `${record}email = """${SECRET}\nb"""\n`, 3, emailReason),
  broken("an email with dotted keys", `${record}email.of = "x"\n`, 3, emailReason),
  broken(
    "a word for disabled",
    `${record}disabled = "yes"\n`,
    3,
    /^`disabled` must be true or false$/,
  ),
  broken("a number for disabled", `${record}disabled = 1\n`, 3, /^`disabled` must be true/),
  ...["-1", "1.5", "inf", "nan", '"1763700000"', "1979-05-27T07:32:00Z", "true"].map((odd) =>
    broken(`a limit of ${odd}`, `${record}tokens_valid_after = ${odd}\n`, 3, afterReason),
  ),
  broken(
    "a user twice",
    `${user("a")}${user("b")}[[users]]\nusername = 'a'\n`,
    10,
    /^this user has a record already$/,
  ),
];

const passwords = [
  broken("a number for a hash", `${record}password_hash = 1\n`, 3, hashReason),
  ...hashes(
    ...["", SECRET, "$2b$12$abcdefghijklmnopqrstuv", `$argon2i$v=19$m=64,t=1,p=1$${SALT}$${SALT}`],
    ...[`$argon2d$v=19$m=64,t=1,p=1$${SALT}$${SALT}`, `$argon2id$m=64,t=1,p=1$${SALT}$${SALT}`],
    ...[`$argon2id$v=16$m=64,t=1,p=1$${SALT}$${SALT}`, `$argon2id$v=19$m=64,t=1,p=1$${SALT}`],
    ...[`$argon2id$v=19$m=64,t=1,p=1$c2FsdA$${SALT}`, `$argon2id$v=19$m=64,t=1,p=1$${SALT}$c2FsdA`],
    ...[`${hashWith()} `, ` ${hashWith()}`, `${hashWith()}\\n`, `${hashWith()}${"A".repeat(512)}`],
    ...["m=64,t=1", "m=64,t=1,p=1,p=1", "m=64,m=64,p=1", "m=64,t=1,x=1", "t=1,p=1"].map(hashWith),
    ...["m=7,t=1,p=1", "m=1048577,t=1,p=1", "m=64,t=0,p=1", "m=64,t=65,p=1"].map(hashWith),
    ...["m=1024,t=1,p=0", "m=1024,t=1,p=65", "m=8,t=1,p=2", "m=-64,t=1,p=1"].map(hashWith),
    ...["m=64.5,t=1,p=1", "m=1e3,t=1,p=1", "m=99999999,t=1,p=1", "m= 64,t=1,p=1"].map(hashWith),
  ),
];

const grants = [
  broken("a grant without a username", '[[acl]]\ndatabase = "a"\nrole = "Owner"\n', 1, nameReason),
  broken("a grant to *", grant("*", "main", "Owner"), 2, nameReason),
  broken("a grant without a database", `${entry}role = "Owner"\n`, 1, databaseReason),
  ...["", "**", "a b", "a.b", "a/b", `${SECRET}%`, "é", "a".repeat(64), "main\\u0000"].map((odd) =>
    broken(`the database ${odd}`, grant(SECRET, odd, "Owner"), 3, databaseReason),
  ),
  broken(
    "a list for a database",
    `${entry}database = ["main"]\nrole = "Owner"\n`,
    3,
    databaseReason,
  ),
  broken(
    "a grant without a role",
    `${entry}database = "main"\n`,
    1,
    /^`role` must be one of .*; it is left out$/,
  ),
  ...["", SECRET, "owner", "OWNER", " Owner", "ReadWrite ", "Admin"].map((odd) =>
    broken(`the role ${odd}`, grant(SECRET, "main", odd), 4, roleReason),
  ),
  broken("a list for a role", `${entry}database = "main"\nrole = ["Owner"]\n`, 4, roleReason),
  broken(
    "an entry twice",
    `${grant(SECRET, "main", "Owner")}${grant(SECRET, "main", "ReadOnly")}`,
    6,
    /^this user has an entry for this database already$/,
  ),
  broken(
    "an entry for * twice",
    `${grant(SECRET, "*", "ReadOnly")}${grant(SECRET, "*", "ReadOnly")}`,
    6,
    /^this user has an entry for this database already$/,
  ),
  broken(
    "a role with a slip",
    grant(SECRET, "main", "ReadWritee"),
    4,
    /None \(did you mean ReadWrite\?\)$/,
  ),
  broken("a role in another case", grant(SECRET, "main", "owner"), 4, / \(did you mean Owner\?\)$/),
  broken(
    "a key with a slip",
    `${entry}databse = "main"\n`,
    3,
    /expires \(did you mean database\?\)$/,
  ),
  broken("a table with a slip", `${record}\n[[user]]\n${name}\n`, 4, / \(did you mean users\?\)$/),
  broken(
    "two databases that differ by case",
    `${grant("a", SECRET, "Owner")}${grant("b", SECRET.toUpperCase(), "Owner")}`,
    8,
    /^another entry names a database that differs from this one only by case$/,
  ),
];

/** Every broken file, in the order of the format's own description. */
export const brokenFiles: readonly BrokenFile[] = [
  ...shapes,
  ...users,
  ...passwords,
  ...grants,
  ...entries,
  ...others,
];
