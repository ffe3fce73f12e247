/* The built-in texts: everyday English of our own, short and long, with the numbers, names and
 * marks that a speech model meets. */
#include "graph/cli/bench/sets.h"

const char *const og__english[] = {
    "The train to the coast leaves from platform nine in a quarter of an hour.",
    "Please close the window before you go.",
    "My grandmother kept a notebook in which she wrote down the weather of every single "
    "day "
    "for more than forty years.",
    "Yes, of course.",
    "Could you tell me where the nearest pharmacy is?",
    "She bought two kilos of apples, a loaf of bread and a small jar of honey.",
    "When the rain finally stopped, the whole street smelled of wet stone and lime "
    "trees.",
    "I will call you back tomorrow morning.",
    "The meeting has been moved to Thursday at half past three, in the small room "
    "upstairs.",
    "Nobody knew who had left the lamp burning in the empty house.",
    "Turn left at the bridge, follow the river for about a mile, and you will see the "
    "mill on "
    "your right.",
    "What a lovely surprise!",
    "He plays the cello better than he admits.",
    "Your parcel has arrived at the post office and can be collected until Saturday.",
    "The old clock in the hall has been slow for as long as anyone can remember.",
    "We are sorry, but all lines are busy at the moment.",
    "A good knife should be sharp, well balanced and pleasant to hold.",
    "Last winter the lake froze so hard that people walked across it to visit their "
    "friends on "
    "the other side.",
    "There is a message for you from the school.",
    "Stir the soup slowly, and do not let it boil.",
    "The museum is closed on Mondays, but the garden behind it is open all week.",
    "I have never seen so many stars.",
    "After the concert we walked home through the park, talking about everything except "
    "the "
    "music.",
    "Would you like tea or coffee with your breakfast?",
    "The first boat sails at dawn.",
    "It took them three days to carry the piano up the hill, and one afternoon to notice "
    "that "
    "it would not fit through the door.",
    "Keep the receipt, in case you want to bring it back.",
    "Two of the five birds came back in spring.",
    "Your table for four is booked under the name of Harper.",
    "The children built a castle of sand that was taller than the youngest of them.",
    "Is anybody there?",
    "In the valley, the harvest begins when the wind turns to the north and the mornings "
    "smell "
    "of smoke.",
    "He folded the letter, put it back into its envelope, and said nothing for a long "
    "time.",
    "The temperature will fall to minus two degrees tonight, with light snow in the "
    "hills.",
    "Never mind.",
    "Our shop is open from eight in the morning until six in the evening.",
    "She spoke so softly that the people in the last row leaned forward all at once.",
    "Please hold on to the rail while the bus is moving.",
    "A stranger in a grey coat asked the way to the harbour, thanked us kindly, and "
    "walked off "
    "in the opposite direction.",
    "The bread is still warm.",
    "You have reached your destination.",
    "I would rather be early and wait than be late and run.",
    "The library has bought a hundred and twenty new books, most of them for young "
    "readers.",
    "Every evening at seven, the baker's dog sits down in front of the shop and waits "
    "for the "
    "lights to go out.",
    "Mind the gap between the train and the platform.",
    "Some say the bell was cast from the coins of the whole village.",
    "Thank you for your patience; somebody will be with you shortly.",
    "The path is steep, but the view from the top is worth every step of it.",
    "How long have you been learning to sail?",
    "On the table lay a map, a broken pencil, and half a sandwich.",
    "We sold the car and bought three bicycles.",
    "If the alarm rings, leave the building by the nearest stairs and do not use the "
    "lift.",
    "Her brother lives abroad, writes rarely, and sends the strangest presents.",
    "It is ten past eleven.",
    "Under the floor they found a tin box full of buttons, no two of them alike.",
    "The lecture was about how bees find their way home when the sun is hidden behind "
    "the "
    "clouds.",
    "Good night, sleep well.",
    "The tickets cost fourteen pounds each, and children under six travel free.",
    "Far out at sea a single light moved slowly from left to right.",
    "You should try the plum cake; it is the only thing here that they bake themselves.",
    "The doctor will see you now.",
    "For a while the two cats pretended not to know each other, and then, as if at a "
    "signal, "
    "both of them jumped on the same chair.",
    "Let us begin with the second chapter.",
    "There was enough wood for one more fire.",
};
const int og__n_english = sizeof og__english / sizeof *og__english;

const char *const og__english_voices[] = {
    "A calm woman in her forties with a low, warm voice, speaking slowly.",
    "A cheerful young man, quick and bright, as if he had good news.",
    "An old man with a rough voice who tells a story by the fire.",
    "A clear, neutral news reader with an even pace.",
    "A shy girl, quiet and a little breathless.",
    "A friendly shop assistant, lively and polite.",
};
const int og__n_english_voices = sizeof og__english_voices / sizeof *og__english_voices;
