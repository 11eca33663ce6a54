/** Who is there, and by which entries. */
export const staff = [
  ...["root * Owner", "rex * Owner"],
  ...["olga main Owner", "otto main Owner", "dora main DbAdmin", "dirk main DbAdmin"],
  ...["wim main ReadWrite", "rita main ReadOnly", "ruth main ReadOnly", "solo side Owner"],
  ...["wide * DbAdmin", "dana * DbAdmin", "dana main ReadOnly", "vera * ReadWrite"],
  ...["nick * ReadWrite", "nick main ReadOnly", "nora * DbAdmin", "nora main ReadOnly"],
  ...["ulla main ReadOnly", "ulla side ReadOnly"],
];

/** A user without a grant. */
export const noel = '[[users]]\nusername = "noel"\n';
