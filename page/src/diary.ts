/** A long example: the diary of a film festival, composed of sentences written for this page. */

const ADJECTIVES = 'Quiet Second Borrowed Northern Patient Hollow Golden Distant Unmarked Winter Crooked Last'.split(
  ' ',
)
const NOUNS = 'Harbour Orchard Letter Season Staircase Mirror Passenger Kitchen Border Lighthouse Choir Garden'.split(
  ' ',
)

const NEUTRAL = [
  'The screening began ten minutes late because the projector had to be moved.',
  'It is set in a small town on the coast, over the course of one summer.',
  'The director introduced it in person and asked us to stay for the discussion.',
  'It runs for a little under two hours and is in colour, apart from the prologue.',
  'The story follows two sisters who inherit a workshop from an uncle they never met.',
  'Half of the dialogue is in Portuguese, with subtitles.',
  'It rained all morning, so the hall was full and smelled of wet coats.',
  'The programme describes it as a family drama with elements of a mystery.',
  'I sat in the fourth row, next to a student who took notes in the dark.',
  'It was shot on location in the mountains, with a crew of twelve people.',
  'Afterwards I walked back along the river and wrote this at the hotel desk.',
  'There were questions about the ending, which the producer declined to answer.',
]

const GOOD = [
  'This is a wonderful film, funny and tender, and I would gladly watch it again tonight.',
  'The acting is superb from the first scene to the last, above all the grandmother.',
  'The photography is beautiful; every frame seems to be lit by memory.',
  'I laughed out loud, and ten minutes later I was in tears, as was everybody around me.',
  'A brilliant script: no word too many, and each scene is a small delight.',
  'The ending is perfect and deeply moving, the best I have seen in years.',
  'It is an excellent debut by a director with a great love for her characters.',
  'The music is gorgeous and never pushes; it trusts the audience, and rightly so.',
  'Highly recommended: take your children, take your parents, see it on a large screen.',
  'What a joy it was to see something so fresh, warm and intelligent.',
  'The leads have marvellous chemistry, and their quarrels are as enjoyable as their peace.',
  'One of the finest films of the year, and an unforgettable evening.',
]

const BAD = [
  'This is a terrible film, dull and pointless, and I wanted my two hours back.',
  'The acting is awful; the hero reads his lines as if from a bus timetable.',
  'The plot makes no sense at all, and the dialogue is painfully bad.',
  'It is boring from the first minute, badly lit and worse edited.',
  'A complete waste of a good idea, of talent, and of my afternoon.',
  'The jokes are stale and mean, and not one person in the hall laughed.',
  'The ending is ridiculous, a lazy trick that insults the audience.',
  'Poor sound, cheap effects and a script that should never have been filmed.',
  'I have rarely been so annoyed; several people left, and I envied them.',
  'It is pretentious nonsense, slow without being thoughtful and loud without being exciting.',
  'The worst performance of the week, in the worst film of the week.',
  'Avoid it. Nothing works: not the story, not the pace, not even the costumes.',
]

/** Films of one kind come in runs, so that the strip shows them. */
const DAYS = 'ggggbbgggggbbbbbgmggggbbmggggggbbmggbbbggmggggbbbmgggggg'

/** The diary; it is the same each time. */
export function diary(): string {
  let state = 20
  const random = (below: number) => {
    state = (state * 1103515245 + 12345) % 2147483648
    return Math.floor((state / 2147483648) * below)
  }
  const pick = (from: string[]) => from[random(from.length)] ?? ''
  const days = [...DAYS].map((kind, index) => {
    const opinions = kind === 'g' ? GOOD : kind === 'b' ? BAD : [...GOOD, ...BAD]
    const title = `The ${pick(ADJECTIVES)} ${pick(NOUNS)}`
    const paragraphs = [0, 1, 2].map(() =>
      Array.from({ length: 8 }, (_, line) => pick(line % 4 === 3 ? NEUTRAL : opinions)).join(' '),
    )
    return `Day ${index + 1}. ${title}\n\n${paragraphs.join('\n\n')}`
  })
  return [
    'Eight weeks at a film festival: a diary. It is an example, composed of sentences written for this page.',
    ...days,
  ].join('\n\n')
}
