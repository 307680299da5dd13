"""Function words of three languages: closed word classes that join content words and carry no topic."""

from __future__ import annotations

__all__ = ["STOP_WORDS"]

_EN = """
a about above after again against all also am an and any are aren as at be because been before being
below between both but by can cannot could couldn d did didn do does doesn doing don down during
each few for from further had hadn has hasn have haven having he her here hers herself him himself
his how i if in into is isn it its itself just ll m may me might more most must my myself no nor not
of off on once only or other our ours ourselves out over own re s same shall she should shouldn so
some such t than that the their theirs them themselves then there these they this those through to
too under until up upon ve very was wasn we were weren what when where which while who whom whose
why will with won would wouldn you your yours yourself yourselves
"""

_ES = """
a al algo algunas algunos ante antes aquel aquella aquellas aquellos aquí así aun aunque bien cada
como cómo con contra cual cuál cuales cuáles cualquier cuando cuándo cuanto cuánto cuánta cuántas
cuántos de del desde donde dónde durante e el él ella ellas ello ellos en entre era eran eres es esa
esas ese eso esos esta está están estaba estaban estado estamos estar estas este esto estos estoy
fue fueron fui ha había habían han has hasta hay he hemos la las le les lo los más me mi mí mis mía
mío mientras muy mucho muchos nada ni no nos nosotras nosotros nuestra nuestras nuestro nuestros o
os otra otras otro otros para pero poco por porque pues que qué quien quién quienes quiénes se sea
sean según ser si sí sido siendo sin sino sobre sois solo sólo somos son soy su sus suya suyo
también tan tanto te tendrá tenemos tener tengo ti tiene tienen toda todas todavía todo todos tras
tu tú tus tuya tuyo un una unas uno unos usted ustedes vosotros vuestra vuestro y ya yo
"""

_PT = """
a ainda algum alguma algumas alguns ali além antes ao aos após aquela aquelas aquele aqueles aqui
aquilo as assim até bem cada com comigo como connosco consigo contra cuja cujo da das de dela delas
dele deles depois desde do dos dum duma durante e ela elas ele eles em entre então era eram essa
essas esse esses esta estamos estar estas estava estavam este esteja estes estive estou está estão
eu foi fomos for foram fosse fui haja há isso isto já lhe lhes lo lá mais mas me mesmo meu meus mim
minha minhas muito na nas nem nenhum nenhuma no nos nossa nossas nosso nossos num numa não nós o
onde os ou outra outras outro outros para pela pelas pelo pelos per perante pode podem pois por
porque porquê quais qual qualquer quando quanta quantas quanto quantos que quem quê se seja sejam
sem sempre sendo ser será seu seus si sido sim sob sobre somos sou sua suas são só tais tal também
tanta tanto te tem temos tenha tenho ter teu teus ti tinha tinham toda todas todo todos tu tua tuas
tão têm um uma umas uns você vocês vos vossa vosso à às é és
"""

#: ISO 639-1 code -> words, composed (NFC) and lower-case
STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in (("en", _EN), ("es", _ES), ("pt", _PT))
}
